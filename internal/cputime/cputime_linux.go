package cputime

import (
	"syscall"
	"time"
	"unsafe"
)

// Name names what is measured, for output.
const Name = "CPU time"

// The clock ids of clock_gettime(2).
const (
	processClock = 2
	threadClock  = 3
)

func process() time.Duration { return read(processClock) }

func thread() time.Duration { return read(threadClock) }

// read reads the clock itself, because getrusage is only as recent as the last tick of the scheduler, some
// milliseconds.
func read(clock uintptr) time.Duration {
	var t syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic(errno) // the call fails only for an unknown clock
	}
	return time.Duration(t.Nano())
}
