package rate

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrBack says that a store, or a connection to it, works again. It is no error: a [Log] writes it as information.
var ErrBack = errors.New("works again")

// Outage knows of an outage, and tells of it once when it begins and once when it ends. One goroutine may call Lost and Back at a
// time, any may call Now.
type Outage struct{ now atomic.Pointer[lost] }

// lost is an outage: when it began, and why.
type lost struct {
	since time.Time
	why   error
}

// Lost notes that something does not work, and reports why if that is new.
func (o *Outage) Lost(why error, report func(error)) {
	if o.now.Load() == nil {
		o.now.Store(&lost{time.Now(), why})
		report(why)
	}
}

// Back notes that it works, and reports [ErrBack] with the time that the outage took, if there was one.
func (o *Outage) Back(report func(error)) {
	if was := o.now.Load(); was != nil {
		o.now.Store(nil)
		report(fmt.Errorf("%w after %v; there was: %w", ErrBack, time.Since(was.since).Round(time.Millisecond), was.why))
	}
}

// Now returns since when there is an outage, and why; nil: there is none.
func (o *Outage) Now() (since time.Time, why error) {
	if now := o.now.Load(); now != nil {
		return now.since, now.why
	}
	return since, nil
}
