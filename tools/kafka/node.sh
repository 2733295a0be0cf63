# What start and stop know about a node's process. Sourced by both.

# The command line and the state of process $1. ps isn't on every small Linux,
# and /proc on no other system.
command_of() {
  if [ -e "/proc/$1/cmdline" ]; then tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline"; else ps -ww -o args= -p "$1" 2>/dev/null; fi
}
state_of() {
  if [ -e "/proc/$1/status" ]; then sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null; else ps -o stat= -p "$1" 2>/dev/null; fi
}

# running NODE: is the process that NODE/pid names this very node's broker? A
# pid alone may long belong to somebody else.
running() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) && [ -n "$pid" ] && [[ " $(command_of "$pid") " == *" $1/server.properties "* ]]
}

# gone PID: is nothing of the process left? A killed JVM has no command line any
# more while its threads still hold the ports and the data's lock; and where
# nobody collects it, what is left in the end is a zombie with one thread.
gone() {
  local tasks=("/proc/$1/task"/*)
  kill -0 "$1" 2>/dev/null || return 0
  [[ "$(state_of "$1")" == Z* ]] && [ ${#tasks[@]} = 1 ]
}

# taken PORT: does something listen there?
taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
