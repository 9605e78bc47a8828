package claim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// crashed is the error of somebody else's code that did not return: it panicked, or exited its goroutine.
type crashed struct{ how string }

func (c *crashed) Error() string { return c.how }

// guard runs somebody else's code and hands its error to then, which is called exactly once: also when f
// panics, which becomes an error, or exits the goroutine.
func guard(f func() error, then func(error)) {
	var err error = &crashed{"it exited its goroutine"}
	defer func() {
		if v := recover(); v != nil { // nil after runtime.Goexit
			err = &crashed{fmt.Sprintf("it panicked: %v\n%s", v, debug.Stack())}
		}
		then(err)
	}()
	err = f()
}

// contained runs somebody else's code in a goroutine of its own and waits for it.
func contained(f func() error) error {
	done := make(chan error, 1)
	go guard(f, func(err error) { done <- err })
	return <-done
}

// hasCrashed reports whether somebody else's code did not return.
func hasCrashed(err error) bool {
	c := (*crashed)(nil)
	return errors.As(err, &c)
}

// pause waits, and reports whether the context did not end meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// report tells the importer what has no caller to be told. It is never called from the loop.
func (p *Pool) report(err error) {
	if p.Report != nil {
		guard(func() error { p.Report(err); return nil }, func(error) {})
	}
}
