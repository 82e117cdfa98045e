# Runs a service for exactly as long as somebody holds the other end of our standard input.
#
#   HINDCAST_SERVICE=COMMAND sh service.sh
#
# End of file means that the service is to end, or that whoever started us is gone, even by SIGKILL. The service and all that it
# started are in this process group, or have left it (php-fpm does): they are asked to end, and ended if they do not.
exec 3<&0 </dev/null
command=$HINDCAST_SERVICE
unset HINDCAST_SERVICE
eval "$command" 3<&- &
service=$!

# What a process has started, and what that has.
tree() {
    for of in /proc/[0-9]*/stat; do
        read -r stat <"$of" || continue
        # Behind the name, which may hold anything: state, parent.
        rest=${stat##*) }
        rest=${rest#? }
        [ "${rest%% *}" = "$1" ] || continue
        echo "${stat%% *}"
        (tree "${stat%% *}")
    done
}

# Whether one of them has not ended; that nobody has asked how it did does not matter.
one_is_there() {
    for one in "$@"; do
        read -r stat <"/proc/$one/stat" || continue
        case ${stat##*) } in
        [ZX]*) ;;
        *) return 0 ;;
        esac
    done
    return 1
}

{
    cat <&3 >/dev/null
    trap '' TERM
    all="$service $(tree "$service")"
    kill -TERM 0 $all
    n=0
    while one_is_there $all && [ "$n" -lt 50 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    kill -KILL $all
    kill -KILL 0
} 2>/dev/null &
watcher=$!

trap '' TERM
wait "$service"
status=$?
exec 3<&-
# If it is ending the service, which may have left others behind, it ends us as well.
kill -TERM "$watcher" 2>/dev/null
wait "$watcher"
exit "$status"
