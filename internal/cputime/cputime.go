// Package cputime measures how much processor time work has taken, so that two pieces of work can be compared on a
// machine that others share. Wall time includes the time in which others ran; on a busy machine that is most of it.
// Only tests and examples import the package.
package cputime

import (
	"runtime"
	"time"
)

// Process returns the processor time of all threads of this process so far, including the garbage collector. Where the
// system has no such clock ([Name] says so) it returns wall time.
func Process() time.Duration { return process() }

// Of runs f and returns the processor time of f's goroutine, without that of other threads meanwhile. F must not leave
// the work to other goroutines.
func Of(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := thread()
	f()
	return thread() - start
}
