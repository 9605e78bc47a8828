package rate

import (
	"errors"
	"fmt"
	"time"
)

// ErrBack says that a store answers again. It is no error: a [Log] writes it as information.
var ErrBack = errors.New("the store answers again")

// Outage tells of an outage once when it begins and once when it ends. One goroutine may use it at a time.
type Outage struct {
	began time.Time
	why   error
}

// Lost notes that a store does not answer, and reports that if it is new.
func (o *Outage) Lost(why error, report func(error)) {
	if o.why == nil {
		o.began, o.why = time.Now(), why
		report(why)
	}
}

// Back notes that the store answers, and reports [ErrBack] with the time that the outage took, if there was one.
func (o *Outage) Back(report func(error)) {
	if o.why != nil {
		report(fmt.Errorf("%w after %v; there was: %w", ErrBack, time.Since(o.began).Round(time.Millisecond), o.why))
		o.why = nil
	}
}
