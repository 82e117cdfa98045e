# Keeps something in a cache of files, and tells whether it was there: Puma and ActiveSupport.
#
#     ruby kept.rb PORT      the files are in $KEPT
require "active_support"
require "active_support/cache"
require "puma"
require "rack/handler/puma"

store = ActiveSupport::Cache::FileStore.new(ENV["KEPT"])
application = lambda do |_|
  found = true
  store.fetch("report") { found = false }
  [200, { "content-type" => "text/plain" }, ["#{found} "]]
end
Rack::Handler::Puma.run(application, Host: "127.0.0.1", Port: ARGV[0].to_i, Silent: true)
