package claim

import (
	"context"

	"github.com/orbitsched/orbit"
)

// Slot is a place that can be claimed, such as a warm sandbox or an idle node. Name and UID together identify it: a slot
// that is removed and made anew under the same name has another UID and is another slot.
type Slot struct {
	// Name is unique among the slots that are idle at one time.
	Name string
	// UID is never used again under this name.
	UID string
	// Labels are what a request's Want is compared with. In a slot of a [LedgerSource] they are the node's, and read-only.
	Labels map[string]string
	// Capsule is the capsule that a [LedgerSource] has placed on the slot; empty before the claim and with other sources.
	Capsule orbit.CapsuleID
	// Devices are the device instances that a claim from a [LedgerSource] takes, or has taken.
	Devices orbit.DeviceSet
	// Object is a value of the source. The pool passes it from the newest listing to the claim, and from the claim to the
	// caller.
	Object any
}

// key is what reservations know a slot by. A listing that shows other devices of a node than those that are in
// flight, or were taken by someone else, does not contradict that.
type key struct {
	name, uid string
	devices   orbit.DeviceSet
}

func (s *Slot) key() key { return key{s.Name, s.UID, s.Devices} }

// Listing is what a source knows of idle slots.
type Listing struct {
	// Slots are idle slots. The new ones join the pool's queue in this order.
	Slots []Slot
	// Gone are the names of slots that are no longer idle; only in a partial listing.
	Gone []string
	// Partial says that the listing has only what has changed. Otherwise it has all idle slots, and every slot that it leaves
	// out is not idle.
	Partial bool
	// Version is the version of the store up to which the listing has everything. 0: the source does not know; then a slot
	// that was claimed does not count as idle before its reservation has ended.
	Version uint64
}

// Attempt is one try to claim a slot for a request.
type Attempt struct {
	// ID identifies the attempt. The pool uses it again only to repeat the same attempt after an unknown outcome, so that a
	// source can make its claims idempotent.
	ID orbit.ProposalID
	// Slot is the slot as it was listed.
	Slot Slot
	// Request is the pool's copy of the request; read-only.
	Request *Request
}

// Source is a store of slots. Its methods are called from many goroutines at once. They should return soon
// after their context has ended; a panic, or a call that never returns, costs the one request, or the one
// listing, and the place of one claim in flight.
type Source interface {
	// Idle lists the idle slots. It may be stale: the pool reserves what it has handed out, and the claim
	// settles who won. At most one call runs at a time, besides up to four that have not returned within
	// Pool.Timeout, and are not believed any more. On an error the pool goes on with what it knows.
	Idle(ctx context.Context) (Listing, error)
	// Claim claims a slot, atomically: compare-and-swap from idle to claimed. It returns the slot with
	// whatever the caller is to get of it, and the version of the store that has the outcome (0: unknown).
	// The errors that say something:
	//   - orbit.ErrConflict: the slot is not idle, or not the same; the request gets another one.
	//   - orbit.ErrUnknown, or the end of a context: it may or may not have been claimed. The pool makes the
	//     same attempt again until it knows.
	//   - anything else: it was not claimed. The slot is free again, and the request is answered with it.
	Claim(ctx context.Context, a Attempt) (claimed Slot, version uint64, err error)
	// Return makes a claimed slot idle again. The pool calls it for a claim that was committed when its
	// request had ended already; the importer, when it has no more use for a slot. To return it twice is no
	// error, and changes nothing.
	Return(ctx context.Context, claimed Slot) error
}

// Follower is a source that can say by itself what has changed. Its pool needs no NotifyIdle, and polls only
// in case something was missed.
type Follower interface {
	Source
	// Follow returns what has changed after a version, as soon as there is something: a partial listing, or
	// a full one if it cannot tell any more. The version it returns is where to go on from; one that is not
	// newer (and not 0) says that there was nothing after all, and is asked again a second later. It is not
	// called again before the pool has taken in what it returned.
	Follow(ctx context.Context, after uint64) (Listing, error)
}
