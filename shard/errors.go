package shard

import (
	"errors"
	"fmt"
	"strings"

	"github.com/orbitsched/orbit"
)

// The errors of the package, for errors.Is. An error that concerns a capsule, a gang or a mark is an [*Error], for
// errors.As.
var (
	// ErrFailed means that all schedulers have failed to place a capsule. The dispatcher tries it again with a
	// back-off, and when there is free capacity for it.
	ErrFailed = errors.New("no scheduler could place it")
	// ErrGivenBack means that a scheduler could not place a capsule and has given it back, so that others try it.
	ErrGivenBack = errors.New("given back")
	// ErrStranded means that a capsule or a gang waits because the scheduler that it is pinned to does not live.
	ErrStranded = errors.New("pinned to a scheduler that does not live")
	// ErrContradiction means that a capsule is assigned to two schedulers.
	ErrContradiction = errors.New("contradictory assignments")
	// ErrPolicy means that a policy has panicked, has exited its goroutine, or has not returned the name of a candidate.
	ErrPolicy = errors.New("policy named no scheduler")
	// ErrKey means that an id is too long for the key of a mark.
	ErrKey = errors.New("id too long for a mark")
	// ErrCorrupt means that the value of a mark cannot be parsed. The mark is treated as missing.
	ErrCorrupt = errors.New("mark is corrupt")
	// ErrAlone means that no scheduler lives, so that all capsules wait.
	ErrAlone = errors.New("no scheduler lives")
	// ErrNoTerm means that a scheduler that needs a lease has no live term.
	ErrNoTerm = errors.New("scheduler holds no lease")
	// ErrStuck means that a call of a scheduler's Plan has run for longer than its lease lives.
	ErrStuck = errors.New("plan does not return")
	// ErrGroup means that a capsule does not fit on the nodes of a strict scheduler's group. The error is a [*GroupNoFit].
	ErrGroup = errors.New("not in the group")
)

// Error says what is wrong with a capsule, a gang or a mark. Its text says what to do.
type Error struct {
	// Kind is one of ErrFailed, ErrGivenBack, ErrStranded, ErrContradiction, ErrPolicy, ErrKey and ErrCorrupt.
	Kind error
	// Capsule or Gang is what the error concerns; of several capsules that are submitted together it is the first. Both
	// are empty if the error concerns a mark.
	Capsule orbit.CapsuleID
	Gang    orbit.GangID
	// Schedulers are those to which a capsule is assigned (ErrContradiction), which has given it back (ErrGivenBack), to
	// which it is pinned (ErrStranded), or which a policy has named (ErrPolicy).
	Schedulers []string
	// Failures are the failures of the living schedulers, the newest last (ErrFailed). More says that older ones were
	// dropped because the mark had no room for them.
	Failures []Failure
	More     bool
	// Key is the key of the mark (ErrKey, ErrCorrupt).
	Key string
	// Crash is the policy's panic or exit of its goroutine (ErrPolicy); nil: the policy has returned.
	Crash error

	text string
}

// Error says what is wrong, and what to do.
func (e *Error) Error() string { return "shard: " + e.text }

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }

// wrong returns an error that concerns a unit.
func (u unit) wrong(kind error, text string, schedulers ...string) *Error {
	e := &Error{Kind: kind, Schedulers: schedulers, text: text}
	e.Capsule, e.Gang = u.names()
	return e
}

// String returns the unit's name in error texts.
func (u unit) String() string {
	if u.gang {
		return fmt.Sprintf("gang %q", u.id)
	}
	return fmt.Sprintf("capsule %q", u.id)
}

// names returns the unit's id as that of a capsule or of a gang.
func (u unit) names() (orbit.CapsuleID, orbit.GangID) {
	if u.gang {
		return "", orbit.GangID(u.id)
	}
	return orbit.CapsuleID(u.id), ""
}

const maxListed = 8

// failedError says that all schedulers have failed a unit.
func failedError(u unit, failures []Failure, more bool) *Error {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %v", ErrFailed, u)
	for i, f := range failures {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more", len(failures)-i)
			break
		}
		fmt.Fprintf(&b, "; %q: %s", f.Scheduler, f.Why)
	}
	b.WriteString(". It is tried again with a back-off: add nodes, or ask for less")
	e := u.wrong(ErrFailed, b.String())
	e.Failures, e.More = failures, more
	return e
}

// strandedError says that a unit waits for the scheduler that it is pinned to.
func strandedError(u unit, scheduler string) *Error {
	return u.wrong(ErrStranded, fmt.Sprintf("%v is %v: %q; start it, unpin the capsule (delete its mark), or set Dispatcher.MovePinned",
		u, ErrStranded, scheduler), scheduler)
}

// givenBackError says that a scheduler has given a unit back. It does not wrap the navigator's reason: with a NoFit in
// it the engine would set the whole class aside, and the class's other capsules would not be given back.
func givenBackError(u unit, scheduler string, why error) *Error {
	return u.wrong(ErrGivenBack, fmt.Sprintf("scheduler %q gives it back for others to try: %v", scheduler, why), scheduler)
}

// contradictionError says that a unit is assigned to two schedulers, or more.
func contradictionError(u unit, schedulers ...string) *Error {
	names := make([]string, len(schedulers))
	for i, name := range schedulers {
		names[i] = fmt.Sprintf("%q", name)
	}
	return u.wrong(ErrContradiction, fmt.Sprintf("%v: %v is assigned to %s; assign it to one, or to none for the dispatcher to choose. Nothing was submitted or changed",
		ErrContradiction, u, strings.Join(names, " and to ")), schedulers...)
}

// policyError says what a policy did instead of naming a candidate.
func policyError(c *orbit.Capsule, named string, crash error) *Error {
	did := fmt.Sprintf("it named %q, which is no candidate", named)
	switch {
	case crash != nil:
		did = crash.Error()
	case named == "":
		did = "it named none"
	}
	u := unit{id: string(c.ID)}
	e := u.wrong(ErrPolicy, fmt.Sprintf("%v for %v: %s; the capsule stays unassigned, and the policy will be asked again", ErrPolicy, u, did), named)
	e.Crash = crash
	return e
}

// keyError says by how much an id is too long.
func keyError(kind markKind, id string, most int) *Error {
	return &Error{Kind: ErrKey, Key: kind.key(id), text: fmt.Sprintf("%v: %q has %d bytes, and the key %sID of its mark has room for ids of %d; choose a shorter id or raise Limits.IDBytes",
		ErrKey, id, len(id), kind, most)}
}

// corruptError says which mark cannot be read.
func corruptError(key, value string) *Error {
	return &Error{Kind: ErrCorrupt, Key: key, text: fmt.Sprintf("%v: %q has value %.64q; it is treated as missing until a scheduler writes it anew; write such marks with this package only",
		ErrCorrupt, key, value)}
}
