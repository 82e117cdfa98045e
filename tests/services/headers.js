// Shows the headers of each request, as they came: for a request's log, or for who keeps requests.
//
//     headers.js PORT

const http = require('node:http')

const server = http.createServer((request, response) => {
  let body = ''
  request.on('data', (piece) => { body += piece })
  request.on('end', () => {
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ headers: Object.entries(request.headers).sort(), body }))
  })
})
server.listen(Number(process.argv[2]), '127.0.0.1')
