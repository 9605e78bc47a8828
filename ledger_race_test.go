package orbit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The race detector says nothing about a ledger that checks outside its lock. So the calls of real goroutines
// are recorded, with an order in which they began and ended, and judged afterwards by [faultsOf].

// raceCall is one call and its answer.
type raceCall struct {
	name       string
	start, end int64    // on one clock that ticks with every begin and end
	answer     Revision // the revision that the answer is of
	after      Revision // what Changes was asked for
	proposal   Proposal
	changes    []Change
	err        error
}

// raceOp is one step of a worker's plan, drawn before any goroutine starts.
type raceOp struct {
	kind    string
	capsule int
	node    int
	fresh   bool // take a snapshot first
	bet     bool
}

const raceWorkers = 8

func drawRaceOps(t *rapid.T) (plan [raceWorkers][]raceOp) {
	kinds := rapid.SampledFrom([]string{"place", "place", "place", "place", "release", "release", "hold", "unhold", "resend", "batch", "snapshot", "changes", "wait", "drain"})
	op := rapid.Custom(func(t *rapid.T) raceOp {
		return raceOp{kinds.Draw(t, "kind"), rapid.IntRange(0, 11).Draw(t, "capsule"), rapid.IntRange(0, 2).Draw(t, "node"),
			rapid.IntRange(0, 2).Draw(t, "fresh") > 0, rapid.Bool().Draw(t, "bet")}
	})
	for i := range plan {
		plan[i] = rapid.SliceOfN(op, 5, 20).Draw(t, "ops")
	}
	return plan
}

// raceWorld is small and hot: three nodes, twelve capsules, half of them on devices.
func raceWorld(t require.TestingT, l Ledger) {
	world := Proposal{ID: ProposalID{15: 1}}
	for i := range 3 {
		world.Do = append(world.Do, PutNode{raceNode(i)})
	}
	plain, devices := &Spec{Envelope: Envelope{Reservation: Resources{CPU: 2}}}, &Spec{Devices: DeviceRequest{Count: 1, Milli: 600}}
	for i := range 12 {
		world.Do = append(world.Do, Submit{IDs: []CapsuleID{raceCapsule(i)}, Spec: []*Spec{plain, devices}[i%2]})
	}
	_, err := l.Propose(bg, world)
	require.NoError(t, err)
}

func raceNode(i int) Node {
	return Node{ID: NodeID(fmt.Sprint("n", i)), Capacity: Resources{CPU: 5}, Devices: Devices{Model: "A", Count: 2}}
}

func raceCapsule(i int) CapsuleID { return CapsuleID(fmt.Sprint("c", i)) }

// raceWorker carries out its plan and records every call.
type raceWorker struct {
	ledger Ledger
	clock  *atomic.Int64
	number int
	view   *State
	last   Proposal
	calls  []raceCall
}

func (w *raceWorker) call(c raceCall, do func(c *raceCall)) {
	c.start = w.clock.Add(1)
	do(&c)
	c.end = w.clock.Add(1)
	w.calls = append(w.calls, c)
}

func (w *raceWorker) run(ops []raceOp) {
	w.snapshot()
	for i, op := range ops {
		if op.fresh {
			w.snapshot()
		}
		id := ProposalID{0: byte(w.number + 1)}
		binary.BigEndian.PutUint32(id[8:], uint32(i+1))
		w.step(op, id)
	}
}

func (w *raceWorker) step(op raceOp, id ProposalID) {
	node := NodeID(fmt.Sprint("n", op.node))
	hold := HoldID(fmt.Sprint("h", op.node))
	switch op.kind {
	case "place":
		w.propose(w.place(op, id))
	case "release":
		w.propose(Proposal{ID: id, View: w.view.Revision(), Do: []Commitment{Release{Capsule: raceCapsule(op.capsule), Stopped: true}}})
	case "hold":
		h := Hold{ID: hold, Node: node, Room: Resources{CPU: 1}, Ends: time.Unix(1e9, 0).UTC()}
		w.propose(Proposal{ID: id, View: w.view.Revision(), Do: []Commitment{h}})
	case "unhold":
		w.propose(Proposal{ID: id, View: w.view.Revision(), Do: []Commitment{Release{Hold: hold}}})
	case "drain":
		n := raceNode(op.node)
		n.Cordon(op.bet)
		n.Capacity[CPU] = int64(op.capsule)
		w.propose(Proposal{ID: id, View: w.view.Revision(), Do: []Commitment{PutNode{n}}})
	case "resend":
		if len(w.last.Do) > 0 {
			w.propose(w.last)
		}
	case "batch":
		w.batch(op, id)
	case "snapshot":
		w.snapshot()
	case "changes":
		w.changes()
	case "wait":
		w.wait()
	}
}

// place proposes what the view, however old, shows as possible.
func (w *raceWorker) place(op raceOp, id ProposalID) Proposal {
	c := w.view.Capsule(raceCapsule(op.capsule))
	n := w.view.Node(NodeID(fmt.Sprint("n", op.node)))
	place := Place{Capsule: c.ID, Node: n.Node.ID}
	if set, ok := n.PickDevices(c.Spec); ok {
		place.Devices = set
	} else {
		place.Devices = 1
	}
	p := Proposal{ID: id, View: w.view.Revision(), Do: []Commitment{place}}
	if op.bet {
		p.If = []Precondition{NodeFreeOf{n.Node.ID, c.Spec.Envelope.Reservation}}
	}
	return p
}

func (w *raceWorker) propose(p Proposal) {
	w.last = p
	w.call(raceCall{name: "propose", proposal: p}, func(c *raceCall) {
		c.answer, c.err = w.ledger.Propose(bg, p)
	})
	w.calls[len(w.calls)-1].dated()
}

// dated gives a rejection the revision that it is of.
func (c *raceCall) dated() {
	var r *Rejection
	if errors.As(c.err, &r) {
		c.answer = r.At
	}
}

func (w *raceWorker) batch(op raceOp, id ProposalID) {
	b, ok := w.ledger.(Batcher)
	if !ok {
		return
	}
	var batch []Proposal
	for i := range 3 {
		id[1] = byte(i + 1)
		op.capsule = (op.capsule + i) % 12
		batch = append(batch, w.place(op, id))
	}
	start := w.clock.Add(1)
	out := b.ProposeBatch(bg, batch)
	end := w.clock.Add(1)
	for i, o := range out {
		c := raceCall{name: "batch", start: start, end: end, proposal: batch[i], answer: o.Revision, err: o.Err}
		c.dated()
		w.calls = append(w.calls, c)
	}
}

func (w *raceWorker) snapshot() {
	w.call(raceCall{name: "snapshot"}, func(c *raceCall) {
		w.view, c.err = w.ledger.Snapshot(bg)
		c.answer = w.view.Revision()
	})
}

func (w *raceWorker) changes() {
	w.call(raceCall{name: "changes", after: w.view.Revision()}, func(c *raceCall) {
		c.changes, c.err = w.ledger.Changes(bg, c.after)
		if c.answer = c.after; len(c.changes) > 0 {
			c.answer = c.changes[len(c.changes)-1].Revision
		}
	})
}

func (w *raceWorker) wait() {
	short, cancel := context.WithTimeout(bg, time.Millisecond)
	defer cancel()
	w.call(raceCall{name: "wait"}, func(c *raceCall) {
		rev, err := w.ledger.Wait(short, w.view.Revision())
		if c.answer = rev; err != nil {
			c.answer = noAnswer
		}
	})
}

// noAnswer marks a call that says nothing about any revision.
const noAnswer = Revision(1<<64 - 1)

// raceOn runs the plan and returns all calls.
func raceOn(t require.TestingT, l Ledger, plan [raceWorkers][]raceOp) (calls []raceCall) {
	raceWorld(t, l)
	var clock atomic.Int64
	var workers [raceWorkers]raceWorker
	var wg sync.WaitGroup
	gun := make(chan struct{})
	for i := range workers {
		workers[i] = raceWorker{ledger: l, clock: &clock, number: i}
		wg.Go(func() {
			<-gun
			workers[i].run(plan[i])
		})
	}
	close(gun)
	wg.Wait()
	for i := range workers {
		calls = append(calls, workers[i].calls...)
	}
	return calls
}

// ---- the checker ----

// faultsOf says why the calls cannot have been answered by one linearizable ledger: whose history is legal by
// the rules and ends in its final state, each of whose commits is there once and where it said, whose
// rejections were deserved in the state they speak of, and none of whose answers is older than one completed
// before the call began.
func faultsOf(calls []raceCall, history []Change, final *State) (faults []string) {
	states, replayed := replayAll(history, final)
	faults = append(faults, replayed...)
	faults = append(faults, staleAnswers(calls)...)
	faults = append(faults, misreported(calls, history, states)...)
	return faults
}

// replayAll applies the history revision by revision, from nothing; Apply judges every rule again.
func replayAll(history []Change, final *State) (states map[Revision]*State, faults []string) {
	s := newState(final.limits, final.names)
	states = map[Revision]*State{0: s}
	for len(history) > 0 {
		n := 1
		for n < len(history) && history[n].Revision == history[0].Revision {
			n++
		}
		next, err := s.Apply(history[:n])
		if err != nil {
			return states, append(faults, fmt.Sprintf("history breaks a rule at %d: %v", history[0].Revision, err))
		}
		s, history = next, history[n:]
		states[s.Revision()] = s
	}
	if d := diffStates(s, final); d != "" {
		faults = append(faults, "the history does not end in the final state:\n"+d)
	}
	return states, faults
}

// staleAnswers compares each answer with the newest one that was complete before its call began.
func staleAnswers(calls []raceCall) (faults []string) {
	first := map[ProposalID]int64{} // when a proposal was first sent
	for _, c := range calls {
		if at, ok := first[c.proposal.ID]; !ok || c.start < at {
			first[c.proposal.ID] = c.start
		}
	}
	for _, c := range calls {
		if c.answer == noAnswer {
			continue
		}
		var floor Revision
		for _, earlier := range calls {
			if earlier.end < c.start && earlier.answer != noAnswer {
				floor = max(floor, earlier.answer)
			}
		}
		switch commit := len(c.proposal.Do) > 0 && c.err == nil; {
		case commit && first[c.proposal.ID] < c.start: // a repetition: its revision may be old
		case commit && c.answer <= floor:
			faults = append(faults, fmt.Sprintf("stale: commit at %d began after %d was known", c.answer, floor))
		case c.answer < floor:
			faults = append(faults, fmt.Sprintf("stale: %s answered with %d, which began after %d was known", c.name, c.answer, floor))
		}
	}
	return faults
}

// misreported compares what callers were told with what the history says.
func misreported(calls []raceCall, history []Change, states map[Revision]*State) (faults []string) {
	at := map[ProposalID][]Revision{}
	for _, c := range history {
		if revs := at[c.ID]; !slices.Contains(revs, c.Revision) {
			at[c.ID] = append(revs, c.Revision)
		}
	}
	committed := map[ProposalID]bool{}
	for _, c := range calls {
		if c.err == nil {
			committed[c.proposal.ID] = true
		}
	}
	for _, c := range calls {
		fault := ""
		switch {
		case c.name == "changes":
			fault = wrongChanges(c, history)
		case len(c.proposal.Do) == 0:
		case c.err == nil && !slices.Equal(at[c.proposal.ID], []Revision{c.answer}):
			fault = fmt.Sprintf("committed at %d, the history has it at %v", c.answer, at[c.proposal.ID])
		case c.err != nil && !committed[c.proposal.ID] && len(at[c.proposal.ID]) > 0:
			fault = fmt.Sprintf("rejected (%v), the history has it at %v", c.err, at[c.proposal.ID])
		case c.err != nil:
			fault = undeserved(c, states[c.answer])
		}
		if fault != "" {
			faults = append(faults, fmt.Sprintf("%s %v: %s", c.name, c.proposal.Do, fault))
		}
	}
	return faults
}

func wrongChanges(c raceCall, history []Change) string {
	var want []Change
	for _, h := range history {
		if h.Revision > c.after && h.Revision <= c.answer {
			want = append(want, h)
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(c.changes) {
		return fmt.Sprintf("after %d: got %v, the history has %v", c.after, c.changes, want)
	}
	return ""
}

// undeserved judges a rejected proposal again at the very state that its receipt names.
func undeserved(c raceCall, s *State) string {
	if s == nil {
		return fmt.Sprintf("rejected at %d, a revision that never was", c.answer)
	}
	if err := s.Check(c.proposal); plainError(err) != plainError(c.err) {
		return fmt.Sprintf("rejected with %v, but at that state: %v", c.err, err)
	}
	return ""
}

func finish(t require.TestingT, l Ledger) (history []Change, final *State) {
	history, err := l.Changes(bg, 0)
	require.NoError(t, err)
	final, err = l.Snapshot(bg)
	require.NoError(t, err)
	return history, final
}

// TestRaceIsLinearizable: eight goroutines on three hot nodes; places, releases, holds, drains, repetitions,
// batches, and readers of all kinds. SCENARIOS 3 (I4), 4 (I12), 8 (I8), 9, 10 (I1), 20 (I15), 22 (I5), 26 (I1).
func TestRaceIsLinearizable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plan := drawRaceOps(t)
		l := &MemoryLedger{}
		calls := raceOn(t, l, plan)
		history, final := finish(t, l)
		require.Empty(t, strings.Join(faultsOf(calls, history, final), "\n"))
		require.NoError(t, final.Verify())
	})
}

// ---- ledgers broken on purpose ----

// leakyLedger checks on a snapshot and commits later, whatever has happened in between.
type leakyLedger struct {
	mu    sync.Mutex
	state *State // as far as the history is legal
	log   []Change
}

func (l *leakyLedger) Propose(ctx context.Context, p Proposal) (Revision, error) {
	s, _ := l.Snapshot(ctx)
	if err := s.Check(p); err != nil {
		return 0, err
	}
	runtime.Gosched() // check, then act: the gap
	l.mu.Lock()
	defer l.mu.Unlock()
	rev := Revision(1)
	if len(l.log) > 0 {
		rev = l.log[len(l.log)-1].Revision + 1
	}
	from := len(l.log)
	for i, c := range p.Do {
		l.log = append(l.log, Change{Revision: rev, Seq: i, ID: p.ID, Do: c})
	}
	if next, err := l.state.Apply(l.log[from:]); err == nil {
		l.state = next
	}
	return rev, nil
}

func (l *leakyLedger) Snapshot(context.Context) (*State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == nil {
		l.state = newState(Limits{}, [Dimensions]string{})
	}
	return l.state, nil
}

func (l *leakyLedger) Changes(_ context.Context, after Revision) (out []Change, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.log {
		if c.Revision > after {
			out = append(out, c)
		}
	}
	return out, nil
}

func (l *leakyLedger) Wait(context.Context, Revision) (Revision, error) { return 0, context.Canceled }
func (l *leakyLedger) Limits() Limits                                   { return Limits{}.withDefaults() }

// cachingLedger commits correctly and reads from a snapshot that it renews now and then.
type cachingLedger struct {
	*MemoryLedger
	mu     sync.Mutex
	cached *State
	reads  int
}

func (l *cachingLedger) Snapshot(ctx context.Context) (s *State, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reads++; l.cached == nil || l.reads%4 == 0 {
		l.cached, err = l.MemoryLedger.Snapshot(ctx)
	}
	return l.cached, err
}

// forgetfulLedger does not recognise what it is sent again.
type forgetfulLedger struct{ *MemoryLedger }

func (l forgetfulLedger) Propose(ctx context.Context, p Proposal) (Revision, error) {
	rev, err := l.MemoryLedger.Propose(ctx, p)
	if r := (*Rejection)(nil); errors.As(err, &r) {
		return r.At, nil // "it must have been me"
	}
	return rev, err
}

// TestRaceCatchesBrokenLedgers: the checker above finds what the race detector cannot.
func TestRaceCatchesBrokenLedgers(t *testing.T) {
	for name, c := range map[string]struct {
		broken  func() Ledger
		symptom string
	}{
		"check outside the lock": {func() Ledger { return &leakyLedger{} }, "history breaks a rule"},
		"cached reads":           {func() Ledger { return &cachingLedger{MemoryLedger: &MemoryLedger{}} }, "stale: snapshot"},
		"claims others' commits": {func() Ledger { return forgetfulLedger{&MemoryLedger{}} }, "the history has it at []"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				l := c.broken()
				calls := raceOn(t, l, hotPlan())
				history, err := l.Changes(bg, 0)
				require.NoError(t, err)
				final, _ := (&leakyLedger{}).Snapshot(bg)
				if found := strings.Join(faultsOf(calls, history, final), "\n"); strings.Contains(found, c.symptom) {
					return
				}
			}
			t.Fatal("never caught")
		})
	}
}

// hotPlan makes all workers propose for the same capsules.
func hotPlan() (plan [raceWorkers][]raceOp) {
	for i := range plan {
		for j := range 40 {
			plan[i] = append(plan[i], raceOp{kind: []string{"place", "place", "release"}[j%3], capsule: j % 4, node: (i + j) % 3, fresh: true})
		}
	}
	return plan
}

// ---- gangs under the eye of a reader ----

// TestRaceGangsAreWholeAtEveryRevision: workers place two gangs, whole or with their minimum, and take them
// down whole, against capsules that want the same room; readers look at every revision they can get hold of
// and at every revision there was. SCENARIOS 15 (I3), 17 (I11: at the end one of the two can be placed), 23 (I8).
func TestRaceGangsAreWholeAtEveryRevision(t *testing.T) {
	l := gangWorld(t)
	stop := make(chan struct{})
	faults := make(chan string, 2)
	for _, watch := range []func(*MemoryLedger, chan struct{}) string{watchSnapshots, watchChanges} {
		go func() { faults <- watch(l, stop) }()
	}
	var committed atomic.Int64
	var wg sync.WaitGroup
	for i := range raceWorkers {
		wg.Go(func() {
			for j := range 120 {
				if _, err := l.Propose(bg, gangStep(l, i, j)); err == nil {
					committed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	for range 2 {
		require.Empty(t, <-faults)
	}
	require.Greater(t, committed.Load(), int64(20))
	history, final := finish(t, l)
	states, wrong := replayAll(history, final)
	require.Empty(t, wrong)
	for _, s := range states {
		require.Empty(t, torn(s))
	}
}

// gangWorld has room for one gang of four and a bit; each gang may begin with three.
func gangWorld(t *testing.T) *MemoryLedger {
	l := &MemoryLedger{}
	one := &Spec{Envelope: Envelope{Reservation: Resources{CPU: 1}}}
	p := Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"solo0", "solo1"}, Spec: one}}}
	for i := range 2 {
		p.Do = append(p.Do, PutNode{Node{ID: NodeID(fmt.Sprint("n", i)), Capacity: Resources{CPU: 3}}})
		id := fmt.Sprint("g", i)
		p.Do = append(p.Do, Submit{Gang: &Gang{ID: GangID(id), Roles: []Role{
			{Name: "boss", Spec: one, Members: []CapsuleID{CapsuleID(id + "m0")}},
			{Name: "crew", Spec: one, Members: []CapsuleID{CapsuleID(id + "m1"), CapsuleID(id + "m2"), CapsuleID(id + "m3")}, Min: 2},
		}}})
	}
	_, err := l.Propose(bg, p)
	require.NoError(t, err)
	return l
}

// gangStep places what is down and takes down what is up, and sometimes tries what must not be: half a gang.
func gangStep(l *MemoryLedger, worker, step int) Proposal {
	s, _ := l.Snapshot(bg)
	p := Proposal{View: s.Revision()}
	g := s.Gang(GangID(fmt.Sprint("g", worker%2)))
	for n := range s.Nodes() {
		if g.Total() > 0 { // taken down whole, or not at all: a gang may fall short by a release
			p.If = append(p.If, NodeAt{n.Node.ID, n.Usage, n.Specification})
		}
	}
	size := []int{4, 3, 4, 2}[step%4]
	for i := range 4 {
		m := s.Capsule(CapsuleID(fmt.Sprintf("%sm%d", g.Gang.ID, i)))
		switch {
		case m.Placed():
			p.Do = append(p.Do, Release{Capsule: m.ID, Stopped: true})
		case g.Total() == 0 && i < size:
			p.Do = append(p.Do, Place{Capsule: m.ID, Node: NodeID(fmt.Sprint("n", (i+step)%2))})
		}
	}
	if worker >= 6 {
		solo := CapsuleID(fmt.Sprint("solo", worker%2))
		p.If, p.Do = nil, []Commitment{Place{Capsule: solo, Node: "n0"}}
		if s.Capsule(solo).Placed() {
			p.Do = []Commitment{Release{Capsule: solo, Stopped: true}}
		}
	}
	return p
}

// torn names a gang of which a part is placed that is less than its minimum.
func torn(s *State) string {
	for g := range s.Gangs() {
		n := 0
		for c := range s.Capsules() {
			n += btoi(c.Gang() == g.Gang.ID && c.Placed())
		}
		if n != g.Total() || n > 0 && (g.Placed[0] < 1 || g.Placed[1] < 2) {
			return fmt.Sprintf("revision %d: gang %s has %v placed, %d by recount", s.Revision(), g.Gang.ID, g.Placed, n)
		}
	}
	return ""
}

func watchSnapshots(l *MemoryLedger, stop chan struct{}) string {
	for {
		select {
		case <-stop:
			return ""
		default:
		}
		s, _ := l.Snapshot(bg)
		if why := torn(s); why != "" {
			return why
		}
		if err := s.Verify(); err != nil {
			return err.Error()
		}
	}
}

// watchChanges follows the history from the beginning, waiting for each revision.
func watchChanges(l *MemoryLedger, stop chan struct{}) string {
	waiting, cancel := context.WithCancel(bg)
	defer cancel()
	go func() {
		<-stop
		cancel()
	}()
	s := newState(Limits{}, [Dimensions]string{})
	for {
		if _, err := l.Wait(waiting, s.Revision()); err != nil {
			return ""
		}
		changes, err := l.Changes(bg, s.Revision())
		if err != nil || len(changes) == 0 {
			return fmt.Sprintf("woken for nothing: %v, %v", changes, err)
		}
		for _, c := range slices.Collect(byRevision(changes)) {
			if s, err = s.Apply(c); err != nil {
				return err.Error()
			}
			if why := torn(s); why != "" {
				return why
			}
		}
	}
}

// byRevision yields the changes of one revision at a time.
func byRevision(changes []Change) func(yield func([]Change) bool) {
	return func(yield func([]Change) bool) {
		for len(changes) > 0 {
			n := 1
			for n < len(changes) && changes[n].Revision == changes[0].Revision {
				n++
			}
			if !yield(changes[:n]) {
				return
			}
			changes = changes[n:]
		}
	}
}
