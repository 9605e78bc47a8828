package claim

import (
	"context"

	"github.com/orbitsched/orbit"
)

// Slot is a place that can be claimed, such as a warm sandbox or an idle node. Name and UID together identify it: a
// slot that is removed and made anew under the same name has another UID and is another slot.
type Slot struct {
	// Name is unique among the slots that are idle at one time.
	Name string
	// UID is never used again under this name.
	UID string
	// Labels are what a request's Want is compared with. In the listings of a [LedgerSource] they are the node's, and read-only;
	// a claimed slot has a copy.
	Labels map[string]string
	// Capsule is the capsule that a [LedgerSource] has placed on the slot; empty before the claim and with other sources.
	Capsule orbit.CapsuleID
	// Devices are the device instances that a claim from a [LedgerSource] takes, or has taken.
	Devices orbit.DeviceSet
	// Object is a value of the source. The pool passes it from the newest listing to the claim, and from the claim to the
	// caller.
	Object any
}

// key identifies a slot in reservations. It includes the devices: a listing that shows other devices of the same node
// than the reserved ones is right, so they can be claimed at once.
type key struct {
	name, uid string
	devices   orbit.DeviceSet
}

func (s *Slot) key() key { return key{s.Name, s.UID, s.Devices} }

// Listing is a list of idle slots, complete or partial.
type Listing struct {
	// Slots are idle slots. The new ones join the pool's queue in this order.
	Slots []Slot
	// Gone are the names of slots that are no longer idle; only in a partial listing.
	Gone []string
	// Partial says that the listing has only what has changed. Otherwise it has all idle slots, and every slot that it
	// leaves out is not idle.
	Partial bool
	// Version is the version of the store that the listing shows; it includes everything up to that version. 0:
	// unknown; then a slot that was claimed counts as idle only after its reservation has ended.
	Version uint64
}

// Attempt is one try to claim a slot for a request.
type Attempt struct {
	// ID identifies the attempt. The pool uses it again only to repeat the same attempt after an unknown outcome, so
	// that a source can make its claims idempotent.
	ID orbit.ProposalID
	// Slot is the slot as it was listed.
	Slot Slot
	// Request is the pool's copy of the request; read-only.
	Request *Request
}

// Source is a store of slots. Its methods are called from many goroutines at once. They should return soon after their
// context has ended. A panic, or a call that never returns, costs one request or one listing, and a call of Claim that
// never returns also counts as one claim in flight for ever.
type Source interface {
	// Idle lists the idle slots. The listing may be stale, because the pool reserves the slots that it has handed out,
	// and Claim refuses a slot that is not idle. At most one call runs at a time, besides up to four that have taken
	// longer than Pool.Timeout, whose results are ignored. After an error the pool goes on with the slots that it
	// knows.
	Idle(ctx context.Context) (Listing, error)
	// Claim claims a slot atomically, by a compare-and-swap from idle to claimed, which also makes the changes that the
	// request asks for (Request.Apply). It returns the slot as the caller gets it, with the changed labels, and the
	// version of the store that includes the outcome (0: unknown). The errors mean:
	//   - orbit.ErrConflict: the slot is not idle, or has another uid. The request gets another slot.
	//   - orbit.ErrUnknown, or the end of a context: the slot may or may not have been claimed. The pool repeats the same
	//     attempt until the outcome is known.
	//   - any other error: the slot was not claimed. It is ready again, and the request is answered with the error.
	Claim(ctx context.Context, a Attempt) (claimed Slot, version uint64, err error)
	// Return makes a claimed slot idle again. The pool calls it if a claim is committed after its request has ended; the
	// importer calls it when it needs a slot no longer. Returning a slot twice is no error and changes nothing.
	Return(ctx context.Context, claimed Slot) error
}

// Follower is a source that reports changes by itself. Its pool needs no NotifyIdle, and polls only to find a change
// that was missed.
type Follower interface {
	Source
	// Follow waits for a change after a version, and returns a partial listing of what has changed, or a full listing
	// if it does not know what has changed. The next call continues from the listing's Version. A Version that is not
	// newer (and not 0) means that nothing has changed; the pool then calls again a second later. Calls do not overlap,
	// and the pool has used each listing before the next call.
	Follow(ctx context.Context, after uint64) (Listing, error)
}
