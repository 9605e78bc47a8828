// Package cputime tells how much processor time has been spent, so that two pieces of work can be compared on a machine
// that others share. Wall time also has the time in which others ran; on a busy machine that is most of it. Only tests
// and examples import the package.
package cputime

import (
	"runtime"
	"time"
)

// Process returns what all threads of this process have spent so far, the garbage collector's included. Where the system
// has no such clock ([Name] says so) it is the wall time.
func Process() time.Duration { return process() }

// Of runs f and returns what its own goroutine has spent, without what other threads did meanwhile. F must not leave
// the work to other goroutines.
func Of(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := thread()
	f()
	return thread() - start
}
