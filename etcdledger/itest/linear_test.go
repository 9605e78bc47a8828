package itest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// The number of nodes of the histories, of capsules for each node, and of slots that each node has at first.
const (
	linearNodes    = 3
	linearCapsules = 6
	linearSlots    = 3
)

// witnesses do deeds through several ledgers, as several processes would, and record the answers.
type witnesses struct {
	t       *testing.T
	ledgers []orbit.Ledger
	began   time.Time

	// The fields below are guarded by mu.
	mu      sync.Mutex
	history []porcupine.Operation
	kinds   map[audit.Kind]int
	// Deeds whose outcome was unknown at first, and those that were left at that.
	unsure, left int
}

// capsuleOf returns the id of a capsule that belongs to a node.
func capsuleOf(node, i int) orbit.CapsuleID {
	return orbit.CapsuleID(fmt.Sprintf("capsule-%d-%d", node, i))
}

// slotNode returns a node with a number of slots.
func slotNode(i, slots int) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("node-%d", i)), Capacity: orbit.Resources{orbit.Slots: int64(slots)}}}
}

// newWitnesses makes nodes, capsules and ledgers.
func newWitnesses(t *testing.T, ledgers ...orbit.Ledger) *witnesses {
	w := &witnesses{t: t, ledgers: ledgers, began: time.Now(), kinds: map[audit.Kind]int{}}
	_, err := ledgers[0].Propose(t.Context(), stage())
	require.NoError(t, err)
	return w
}

// stage returns the proposal that makes the nodes and the capsules.
func stage() (p orbit.Proposal) {
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}}
	for n := range linearNodes {
		p.Do = append(p.Do, slotNode(n, linearSlots))
		for i := range linearCapsules {
			p.Do = append(p.Do, orbit.Submit{IDs: []orbit.CapsuleID{capsuleOf(n, i)}, Spec: spec})
		}
	}
	return p
}

// plan draws the deeds of one client.
func plan(rng *rand.Rand, n int) (out []deed) {
	for range n {
		out = append(out, drawDeed(rng))
	}
	return out
}

// drawDeed draws a deed.
func drawDeed(rng *rand.Rand) deed {
	d := deed{Node: rng.IntN(linearNodes)}
	one, two := uint16(1)<<rng.IntN(linearCapsules), uint16(1)<<rng.IntN(linearCapsules)
	switch rng.IntN(10) {
	case 0, 1, 2:
		d.Place = one
	case 3:
		d.Place = one | two
	case 4, 5:
		d.Release = one
	case 6:
		d.Release = one | two
	case 7:
		d.Slots = 1 + rng.IntN(linearCapsules)
	case 8:
		d.Mark, d.Free = 1+rng.IntN(1e6), 1+rng.IntN(2)
	} // else it reads
	if d.Place == one && rng.IntN(2) == 0 {
		d.Free = 1
	}
	return d
}

// markKey returns the key of a node's mark.
func markKey(node int) string { return fmt.Sprintf("mark-%d", node) }

// proposal returns the proposal of a deed.
func (d deed) proposal() orbit.Proposal {
	p := orbit.Proposal{ID: orbit.NewProposalID()}
	if d.Slots > 0 {
		p.Do = append(p.Do, slotNode(d.Node, d.Slots))
	}
	node := slotNode(d.Node, 0).Node.ID
	for i := range linearCapsules {
		if d.Release&(1<<i) != 0 {
			p.Do = append(p.Do, orbit.Release{Capsule: capsuleOf(d.Node, i), Stopped: true})
		}
	}
	for i := range linearCapsules {
		if d.Place&(1<<i) != 0 {
			p.Do = append(p.Do, orbit.Place{Capsule: capsuleOf(d.Node, i), Node: node})
		}
	}
	if d.Mark > 0 {
		p.Do = append(p.Do, orbit.Mark{Key: markKey(d.Node), Value: strconv.Itoa(d.Mark)})
	}
	if d.Free > 0 {
		p.If = append(p.If, orbit.NodeFreeOf{Node: node, AtLeast: orbit.Resources{orbit.Slots: int64(d.Free)}})
	}
	return p
}

// client does deeds one after another. Some of them have little time. If the outcome is then unknown, the client sends
// the deed again through the same ledger until it is known, or leaves it unknown.
func (w *witnesses) client(ctx context.Context, id int, seed uint64, n int) {
	rng := rand.New(rand.NewPCG(seed, uint64(id)))
	for _, d := range plan(rng, n) {
		call := time.Since(w.began)
		a := w.do(ctx, rng, d)
		op := porcupine.Operation{ClientId: id, Input: d, Call: int64(call), Output: a, Return: int64(time.Since(w.began))}
		if a.Kind == audit.Unknown && !d.reads() {
			op.Return = math.MaxInt64
		}
		w.note(op, d, a)
	}
}

// note adds an operation to the history if it can have had an effect or read one.
func (w *witnesses) note(op porcupine.Operation, d deed, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds[a.Kind]++
	if a.Kind == audit.Unavailable || d.reads() && a.Kind != audit.Committed {
		return
	}
	w.history = append(w.history, op)
	if a.Kind == audit.Unknown {
		w.left++
	}
}

// hurry gives some calls very little time.
func hurry(ctx context.Context, rng *rand.Rand) (context.Context, context.CancelFunc) {
	if rng.IntN(4) == 0 {
		return context.WithTimeout(ctx, time.Duration(rng.IntN(8000))*time.Microsecond)
	}
	return context.WithTimeout(ctx, 3*time.Second)
}

// do does a deed.
func (w *witnesses) do(ctx context.Context, rng *rand.Rand, d deed) answer {
	l := w.ledgers[rng.IntN(len(w.ledgers))]
	if d.reads() {
		return readNode(ctx, rng, l, d)
	}
	p := d.proposal()
	if rng.IntN(4) == 0 { // without an id a repetition would not be recognized, so the deed is sent once
		p.ID = orbit.ProposalID{}
	}
	a, unsure := propose(ctx, rng, l, p)
	if unsure {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.unsure++
	}
	return a
}

// propose proposes, some of the times in a hurry. If the outcome is unknown, it sends the proposal again through the same ledger
// until it is known, or leaves it unknown. Unsure says that it was unknown at first.
func propose(ctx context.Context, rng *rand.Rand, l orbit.Ledger, p orbit.Proposal) (a answer, unsure bool) {
	for {
		try, cancel := hurry(ctx, rng)
		rev, err := l.Propose(try, p)
		cancel()
		kind := audit.KindOf(err)
		unsure = unsure || kind == audit.Unknown
		switch {
		case kind == audit.Unavailable && !unsure:
			return answer{Kind: kind}, false // nothing was sent
		case kind != audit.Unknown && kind != audit.Unavailable:
			return answer{Kind: kind, Revision: rev}, unsure
		case p.ID.IsZero() || rng.IntN(6) == 0 || ctx.Err() != nil:
			return answer{Kind: audit.Unknown}, unsure
		}
		time.Sleep(time.Millisecond) // the store may be away
	}
}

// readNode reads the node of a deed, some of the times in a hurry.
func readNode(ctx context.Context, rng *rand.Rand, from orbit.Ledger, d deed) answer {
	ctx, cancel := hurry(ctx, rng)
	defer cancel()
	state, err := from.Snapshot(ctx)
	if err != nil {
		return answer{Kind: audit.KindOf(err)}
	}
	return answer{Kind: audit.Committed, Seen: d.world(state)}
}

// world returns what a state has of the node of a deed.
func (d deed) world(state *orbit.State) world {
	w := world{Slots: int(state.Node(slotNode(d.Node, 0).Node.ID).Node.Capacity[orbit.Slots])}
	for i := range linearCapsules {
		if state.Capsule(capsuleOf(d.Node, i)).Placed() {
			w.Placed |= 1 << i
		}
	}
	value, _ := state.Mark(markKey(d.Node))
	w.Mark, _ = strconv.Atoi(value) // 0: nobody has set it
	return w
}

// run lets the clients do their deeds at the same time.
func (w *witnesses) run(ctx context.Context, clients, deeds int, seed uint64) {
	var all sync.WaitGroup
	for id := range clients {
		all.Go(func() { w.client(ctx, id, seed, deeds) })
	}
	all.Wait()
}

// check asks whether a ledger that does one operation at a time could have given these answers, and requires the
// expected result.
func (w *witnesses) check(want porcupine.CheckResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	result := order(w.t, w.history)
	w.t.Logf("%d operations, answered %v; %d unknown at first, %d left at that: %v", len(w.history), w.kinds, w.unsure, w.left, result)
	require.Equal(w.t, want, result)
}

// order asks whether a ledger that does one operation at a time could have given the answers of a history.
func order(t *testing.T, history []porcupine.Operation) porcupine.CheckResult {
	result, info := porcupine.CheckOperationsVerbose(model(linearSlots), history, time.Minute)
	if result == porcupine.Ok {
		return result
	}
	if file, err := os.CreateTemp(os.TempDir(), "orbit-linear-*.html"); err == nil {
		_ = porcupine.Visualize(model(linearSlots), info, file)
		t.Logf("what could not be put in order: %s", file.Name())
		_ = file.Close()
	}
	return result
}

// trouble kills and restarts members, partitions them and breaks links until ctx ends, and returns how often.
func trouble(ctx context.Context, t *testing.T, c *cluster.Cluster, link *cluster.Link, rng *rand.Rand) (n int) {
	long := within(t, time.Minute)
	wait := func(most time.Duration) { time.Sleep(time.Duration(rng.Int64N(int64(most)))) }
	for ; ctx.Err() == nil; n++ {
		i := rng.IntN(c.Size())
		if leader, err := c.Leader(long); err == nil && rng.IntN(2) == 0 {
			i = leader
		}
		switch rng.IntN(6) {
		case 0, 1, 2:
			_ = c.Kill(i)
			wait(200 * time.Millisecond)
			if err := c.Restart(long, i); err != nil {
				t.Error(err)
				return n
			}
		case 3:
			_ = c.Cut(long, i)
			wait(time.Second)
			_ = c.Mend(long, i)
		default:
			link.Break()
			wait(300 * time.Millisecond)
			link.Mend()
		}
		wait(300 * time.Millisecond)
	}
	return n
}

// The ledgers of several processes together are linearizable, whatever happens to members and links, and whatever the
// outcome of proposals without a known outcome is.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	c := start(t, fast)
	link := &cluster.Link{}
	over, err := c.ClientOver(link)
	require.NoError(t, err)
	t.Cleanup(func() { _ = over.Close() })
	o := options()
	o.Timeout, o.Patience = 500*time.Millisecond, 2*time.Second
	w := newWitnesses(t, open(t, connect(t, c), o), open(t, connect(t, c), o), open(t, connect(t, c, 0), o), open(t, over, o))
	ctx, stop := context.WithCancel(t.Context())
	troubles := make(chan int, 1)
	go func() { troubles <- trouble(ctx, t, c, link, rand.New(rand.NewPCG(3, 3))) }()
	w.run(within(t, 5*time.Minute), 8, scale(t, 120), 3)
	stop()
	t.Logf("%d troubles in %v", <-troubles, time.Since(w.began).Round(time.Millisecond))
	w.check(porcupine.Ok)
	require.Zero(t, w.kinds[audit.Invalid]+w.kinds[audit.Other])
}

// The check notices a reader that is behind: one with Options.Local, whose link is held up.
func TestStaleReaderIsSeen(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	link := &cluster.Link{}
	over, err := c.ClientOver(link)
	require.NoError(t, err)
	t.Cleanup(func() { _ = over.Close() })
	fresh, stale := open(t, connect(t, c), etcdledger.Options{}), open(t, over, etcdledger.Options{Local: true})
	w := newWitnesses(t, fresh)
	require.Eventually(t, func() bool { s, err := stale.Snapshot(t.Context()); return err == nil && s.NodeCount() > 0 }, time.Minute, time.Millisecond)
	link.Hold()
	defer link.Release()
	w.client(t.Context(), 0, 1, 50)
	w.check(porcupine.Ok)
	call := int64(time.Since(w.began))
	state, err := stale.Snapshot(t.Context())
	require.NoError(t, err)
	a := answer{Kind: audit.Committed, Seen: deed{}.world(state)}
	w.note(porcupine.Operation{Input: deed{}, Call: call, Output: a, Return: int64(time.Since(w.began))}, deed{}, a)
	w.check(porcupine.Illegal)
}
