package shard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// ErrFailed says that all schedulers that could have a capsule have failed it. It is tried again with a back-off, and when there
// is room for it.
var ErrFailed = errors.New("no scheduler could place it")

// FailedError says which capsule or gang, and what the schedulers said.
type FailedError struct {
	// One of the two.
	Capsule orbit.CapsuleID
	Gang    orbit.GangID
	// Of those that live, the newest last.
	Failures []Failure
	// There were more than the mark has room for.
	More bool
}

// Error lists the schedulers' reasons, and says what to do.
func (e *FailedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "shard: %v: %s", ErrFailed, nameOf(e.Capsule, e.Gang))
	for i, f := range e.Failures {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more", len(e.Failures)-i)
			break
		}
		fmt.Fprintf(&b, "; %q: %s", f.Scheduler, f.Why)
	}
	b.WriteString(". It is tried again by and by: add room, or ask for less")
	return b.String()
}

const maxListed = 8

// Unwrap makes errors.Is find the kind.
func (e *FailedError) Unwrap() error { return ErrFailed }

// ErrStranded says that what is pinned to a scheduler waits, for it does not live.
var ErrStranded = errors.New("pinned to a scheduler that does not live")

// StrandedError says which capsule or gang, and which scheduler.
type StrandedError struct {
	// One of the two.
	Capsule   orbit.CapsuleID
	Gang      orbit.GangID
	Scheduler string
}

// Error says what waits for whom, and what to do.
func (e *StrandedError) Error() string {
	return fmt.Sprintf("shard: %s is %v: %q; start it, unpin the capsule (delete its mark), or set Dispatcher.MovePinned",
		nameOf(e.Capsule, e.Gang), ErrStranded, e.Scheduler)
}

// Unwrap makes errors.Is find the kind.
func (e *StrandedError) Unwrap() error { return ErrStranded }

// ErrAlone says that no scheduler lives, so that all capsules wait.
var ErrAlone = errors.New("no scheduler lives")

// MarkError is a mark that cannot be read. It counts as none.
type MarkError struct{ Key, Value string }

// Error says which mark, and what becomes of it.
func (e *MarkError) Error() string {
	return fmt.Sprintf("shard: %v: %q has value %.64q; it counts as none, and is written anew or deleted when the time comes", ErrCorrupt, e.Key, e.Value)
}

// Unwrap makes errors.Is find the kind.
func (e *MarkError) Unwrap() error { return ErrCorrupt }

func nameOf(c orbit.CapsuleID, g orbit.GangID) string {
	if g != "" {
		return fmt.Sprintf("gang %q", g)
	}
	return fmt.Sprintf("capsule %q", c)
}

// names returns the unit's id as that of a capsule or of a gang.
func (u unit) names() (orbit.CapsuleID, orbit.GangID) {
	if u.gang {
		return "", orbit.GangID(u.id)
	}
	return orbit.CapsuleID(u.id), ""
}
