package process

import "syscall"

// What pauses a process and lets it go on.
const (
	stop   = syscall.SIGSTOP
	resume = syscall.SIGCONT
)
