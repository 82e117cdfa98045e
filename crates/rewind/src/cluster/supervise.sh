# Runs a Postgres server for exactly as long as somebody holds the other end of our standard input.
#
#   sh supervise.sh REMOVE COMMAND...
#
# Orders come as lines: `fast` and `immediate` stop the server, `stay` lets it run on by itself.
# End of file means that whoever started us is gone, even by SIGKILL: the server is stopped at once,
# and the folder REMOVE, if not empty, is removed: nobody is left to do it.
exec 3<&0 </dev/null
remove=$1
shift

"$@" 3<&- &
server=$!

{
    while read -r order <&3; do
        case $order in
            fast) kill -INT "$server" ;;
            immediate) kill -QUIT "$server" ;;
            stay) exit 0 ;;
        esac
    done
    if [ -n "$remove" ]; then
        : >"$remove/abandoned"
    fi
    kill -QUIT "$server"
} 2>/dev/null &
watcher=$!

wait "$server"
status=$?
kill "$watcher" 2>/dev/null
if [ -n "$remove" ] && [ -e "$remove/abandoned" ]; then
    rm -rf "$remove"
fi
exit "$status"
