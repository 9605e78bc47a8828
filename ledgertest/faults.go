package ledgertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// Fault is what goes wrong with one proposal.
type Fault int

// The faults, from the caller's side.
const (
	// None passes the proposal on unchanged.
	None Fault = iota
	// Conflict does not send the proposal; the answer is a conflict whose receipt names the newest state.
	Conflict
	// Unavailable does not send the proposal; the answer is [orbit.ErrUnavailable].
	Unavailable
	// Lost does not send the proposal; the answer is [orbit.ErrUnknown].
	Lost
	// Applied sends the proposal, which is applied if it holds; the answer is [orbit.ErrUnknown].
	Applied
	// Delayed delays either the proposal or its answer, chosen by chance.
	Delayed
	// Panicked does not send the proposal; the call panics with the value [Panicked].
	Panicked
)

// String returns the name of the fault.
func (f Fault) String() string {
	names := [...]string{"none", "conflict", "unavailable", "lost", "applied", "delayed", "panicked"}
	if f < 0 || int(f) >= len(names) {
		return fmt.Sprintf("Fault(%d)", int(f))
	}
	return names[f]
}

// ErrInjected is wrapped by every error of a fault, except conflicts, whose receipts have its text as their reason.
var ErrInjected = errors.New("injected fault")

// Faults makes ledgers fail, to test their callers, such as engines. Each proposal gets one fault at most, chosen by chance;
// reads fail too, with the chances of Unavailable and Delay. The zero value injects nothing. One Faults may be around
// several handles. Set the fields before first use.
//
// The same seed and the same order of calls give the same faults.
type Faults struct {
	// Seed selects the random sequence of faults; the same seed gives the same sequence for the same calls.
	Seed uint64
	// Conflict, Unavailable, Lost, Applied, Panic and Delay are the chances of the faults, from 0 to 1 each and at most
	// 1 together; default 0.
	Conflict, Unavailable, Lost, Applied, Panic, Delay float64
	// DelayUpTo is the longest delay; default 1 ms. A delay is cut short when the context ends.
	DelayUpTo time.Duration
	// Choose, if set, chooses the fault of each proposal instead of the chances. It is called from one goroutine at a time,
	// with the number of the proposal, from 0. Reads do not fail then.
	Choose func(n int, p orbit.Proposal) Fault

	mu     sync.Mutex // guards the fields below
	rng    *rand.Rand
	count  int
	counts map[Fault]int
}

// Around returns a ledger that passes calls on to l, with faults. It is an [orbit.Batcher] if l is one; the
// proposals of a batch have faults of their own.
func (f *Faults) Around(l orbit.Ledger) orbit.Ledger {
	plain := &faulty{Ledger: l, faults: f}
	if b, ok := l.(orbit.Batcher); ok {
		return &faultyBatcher{plain, b}
	}
	return plain
}

// Counts returns how many proposals have had each fault so far.
func (f *Faults) Counts() map[Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[Fault]int, len(f.counts))
	for fault, n := range f.counts {
		out[fault] = n
	}
	return out
}

// draw decides about a proposal: its fault, and how long a delay would be.
func (f *Faults) draw(p orbit.Proposal) (Fault, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault, pause := f.throw(false)
	if f.Choose != nil {
		fault = f.Choose(f.count, p)
	}
	f.count++
	f.counts[fault]++
	return fault, pause
}

// drawRead decides about a read.
func (f *Faults) drawRead() (Fault, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Choose != nil {
		return None, 0
	}
	return f.throw(true)
}

// throw draws by the chances. It requires the lock.
func (f *Faults) throw(read bool) (Fault, time.Duration) {
	if f.rng == nil {
		f.rng, f.counts = rand.New(rand.NewPCG(f.Seed, 0)), map[Fault]int{}
	}
	pause := f.DelayUpTo
	if pause == 0 {
		pause = time.Millisecond
	}
	pause = time.Duration(f.rng.Float64() * float64(pause))
	dice := f.rng.Float64()
	for _, c := range []struct {
		fault  Fault
		chance float64
	}{{Conflict, f.Conflict}, {Unavailable, f.Unavailable}, {Lost, f.Lost}, {Applied, f.Applied}, {Panicked, f.Panic}, {Delayed, f.Delay}} {
		if read && c.fault != Unavailable && c.fault != Delayed {
			continue
		}
		if dice < c.chance {
			return c.fault, pause
		}
		dice -= c.chance
	}
	return None, pause
}
