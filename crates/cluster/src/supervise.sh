# Runs a program for no longer than somebody holds the other end of our standard input.
#
#   sh supervise.sh COMMAND...
#
# Orders come as lines: `fast` and `immediate` stop it as they stop a Postgres server, `stay` lets it run on by itself.
# End of file means that whoever started us is gone, even by SIGKILL: the program is stopped at once.
exec 3<&0 </dev/null

"$@" 3<&- &
program=$!

{
    while read -r order <&3; do
        case $order in
            fast) kill -INT "$program" ;;
            immediate) kill -QUIT "$program" ;;
            stay) exit 0 ;;
        esac
    done
    kill -QUIT "$program"
} 2>/dev/null &
watcher=$!

wait "$program"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
