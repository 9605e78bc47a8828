package shard

import (
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Round is what one step of a [Dispatcher] did.
type Round struct {
	// View is the revision of the state that the step decided on.
	View orbit.Revision
	// Schedulers is the number of living schedulers.
	Schedulers int
	// Dispatched is the number of capsules assigned to each scheduler, by its name.
	Dispatched map[string]int
	// Redispatched are those of the assigned capsules and gangs that had an owner before or had failed before.
	Redispatched []Move
	// Failed are the capsules and gangs that all living schedulers have failed to place. Each is reported once for each
	// set of schedulers, not once for each try.
	Failed []*Error
	// Stranded are the capsules and gangs that are pinned to a scheduler that does not live. Each is reported once.
	Stranded []*Error
	// Cleared is the number of failed marks that were shortened or deleted because their capsules may fit now.
	Cleared int
	// Dropped is the number of deleted marks of capsules that have been placed or released.
	Dropped int
	// Conflicts is the number of proposals that were refused because something had changed; the next step decides again.
	Conflicts int
	// Left is the number of capsules and gangs that the next step has to decide on.
	Left int
	// Next is the time of the next retry; zero: no retry is due.
	Next time.Time
	// Errors are all other errors, at most 16: the ledger's errors, [ErrPolicy], [ErrCorrupt], [ErrAlone].
	Errors []error
}

// maxErrors is how many errors a report has at most.
const maxErrors = 16

// fail adds an error to the report.
func (r *Round) fail(err error) {
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}

// active reports whether the step did something or failed, so that Hook is called.
func (r *Round) active() bool {
	return len(r.Dispatched)+len(r.Failed)+len(r.Stranded)+r.Cleared+r.Dropped+r.Conflicts+len(r.Errors) > 0
}

// String returns a one-line summary.
func (r Round) String() string {
	var b strings.Builder
	total := 0
	for _, n := range r.Dispatched {
		total += n
	}
	fmt.Fprintf(&b, "revision %d: %d capsules to %d of %d schedulers", r.View, total, len(r.Dispatched), r.Schedulers)
	for _, part := range []struct {
		n    int
		what string
	}{
		{len(r.Redispatched), "redispatched"}, {len(r.Failed), "failed by all"}, {len(r.Stranded), "stranded"},
		{r.Cleared, "marks cleared"}, {r.Dropped, "dropped"}, {r.Conflicts, "conflicts"}, {r.Left, "left"}, {len(r.Errors), "errors"},
	} {
		if part.n > 0 {
			fmt.Fprintf(&b, ", %d %s", part.n, part.what)
		}
	}
	return b.String()
}
