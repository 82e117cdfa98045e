# Runs a service for exactly as long as somebody holds the other end of our standard input.
#
#   HINDCAST_SERVICE=COMMAND sh service.sh
#
# End of file means that the service is to end, or that whoever started us is gone, even by SIGKILL. The service and all that it
# started are in this process group: they are asked to end, and ended if they do not.
exec 3<&0 </dev/null
command=$HINDCAST_SERVICE
unset HINDCAST_SERVICE
eval "$command" 3<&- &
service=$!

{
    cat <&3 >/dev/null
    trap '' TERM
    kill -TERM 0
    n=0
    while kill -0 "$service" && [ "$n" -lt 50 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    kill -KILL 0
} 2>/dev/null &
watcher=$!

trap '' TERM
wait "$service"
status=$?
exec 3<&-
kill -KILL "$watcher" 2>/dev/null
exit "$status"
