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

# These processes, what they have started, and what that has.
tree() {
    known=" $* "
    more=yes
    while [ "$more" ]; do
        more=
        for of in /proc/[0-9]*/stat; do
            read -r stat <"$of" || continue
            # Behind the name, which may hold anything: state, parent.
            rest=${stat##*) }
            rest=${rest#? }
            case $known in
            *" ${stat%% *} "*) ;;
            *" ${rest%% *} "*)
                known="$known${stat%% *} "
                more=yes
                ;;
            esac
        done
    done
    echo "$known"
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

# Until all have ended, for five seconds at most. What they start meanwhile is added to them.
wait_for_all() {
    n=0
    while one_is_there $all && [ "$n" -lt 50 ]; do
        sleep 0.1
        [ $((n % 5)) = 0 ] && all=$(tree $all)
        n=$((n + 1))
    done
}

{
    cat <&3 >/dev/null
    trap '' TERM
    all=$(tree "$service")
    kill -TERM 0 $all
    # A worker that was told before its master may have been started anew.
    wait_for_all
    # Who is stopped starts nothing.
    kill -STOP $all
    all=$(tree $all)
    kill -KILL $all
    wait_for_all
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
