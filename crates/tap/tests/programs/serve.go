// Answers each request on a port with what it draws or reads; the path says how. A request is one
// read, an answer one line.
package main

import (
	"context"
	crypto "crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"
)

// Tables whose order is another one each time, as far as Go is concerned.
func order() string {
	table := map[int]bool{}
	for at := range 12 {
		table[at] = true
	}
	drawn := ""
	for at := range table {
		drawn += fmt.Sprintf("%x", at)
	}
	return drawn
}

func cryptic() string {
	bytes := make([]byte, 16)
	crypto.Read(bytes)
	return fmt.Sprintf("%x", bytes)
}

// Goroutines of the request, one after the other and each of the one before.
func within(depth int, answer func() string) string {
	if depth == 0 {
		return answer()
	}
	done := make(chan string)
	go func() { done <- within(depth-1, answer) }()
	return <-done
}

// A database that cannot be connected to has a pool all the same.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("nowhere") }
func (nowhere) Driver() driver.Driver                        { return nil }

func pools() string {
	sizes := []string{}
	for _, size := range []int{0, 2, 100} {
		database := sql.OpenDB(nowhere{})
		database.SetMaxOpenConns(size)
		sizes = append(sizes, fmt.Sprint(database.Stats().MaxOpenConnections))
	}
	return strings.Join(sizes, " ")
}

// A small table, which stays on the stack.
//
//go:noinline
func table() int {
	small := map[int]int{1: 1}
	return small[len(os.Args)]
}

// By each way of turns, which is another place in the code, to a table.
//
//go:noinline
func left(turns, depth int) int {
	if depth == 0 {
		return table()
	}
	if turns&1 == 0 {
		return left(turns>>1, depth-1)
	}
	return right(turns>>1, depth-1)
}

//go:noinline
func right(turns, depth int) int {
	if depth == 0 {
		return table()
	}
	if turns&1 == 0 {
		return left(turns>>1, depth-1)
	}
	return right(turns>>1, depth-1)
}

// An id behind tables in more places than are counted apart.
func tables() string {
	for turns := range 32 + len(os.Getenv("TABLES")) {
		left(turns, 6)
	}
	return within(1, cryptic)
}

// Goroutines of a request draw, one of which asks a database for a session meanwhile.
func connecting() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	database, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	defer database.Close()
	database.Write([]byte("\x00\x00\x00\x10\x00\x03\x00\x00user\x00a\x00\x00"))
	nonce := cryptic()
	return within(2, cryptic) + " " + nonce
}

// What the main goroutine draws at the start, in whichever threads it runs.
var started string

func start() {
	for at := range 40 {
		done := make(chan bool)
		for range 4 {
			go func() { order(); done <- true }()
		}
		for range 4 {
			<-done
		}
		if at%10 == 0 {
			started += order() + cryptic() + fmt.Sprintf("%016x", rand.Uint64())
		}
	}
}

func answer(path string) string {
	switch path {
	case "start":
		return started
	case "tables":
		return tables()
	case "connecting":
		return connecting()
	case "crypto":
		return cryptic()
	case "rand":
		return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	case "order":
		return order()
	case "goroutine":
		return within(3, cryptic)
	case "large stack":
		var room [64 << 10]byte
		copy(room[:], path)
		return cryptic() + string(room[:0])
	case "time":
		began := time.Now()
		time.Sleep(20 * time.Millisecond)
		ended := time.Now()
		return fmt.Sprint(began.UnixNano(), ended.UnixNano(), int64(ended.Sub(began)))
	case "pools":
		return pools()
	case "since":
		began := time.Now()
		time.Sleep(20 * time.Millisecond)
		deadline := began.Add(48 * time.Hour)
		return fmt.Sprint(int64(time.Since(began)), int64(time.Until(deadline)))
	}
	return "what?"
}

func serve(connection net.Conn) {
	defer connection.Close()
	bytes := make([]byte, 4096)
	for {
		length, err := connection.Read(bytes)
		if err != nil {
			return
		}
		path := strings.ReplaceAll(strings.Split(string(bytes[:length]), " ")[1][1:], "-", " ")
		fmt.Fprintln(connection, answer(path))
	}
}

func main() {
	start()
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	// Threads and goroutines that have nothing to do with it.
	go func() {
		for range time.Tick(time.Millisecond) {
			go order()
		}
	}()
	for {
		connection, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		go serve(connection)
	}
}
