package orbit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// seatOf is a capsule and a node on which it fits.
type seatOf struct {
	capsule CapsuleID
	node    NodeID
}

// overtaking is a ledger that notes each placement that comes before pending work of higher priority of another module, although that fits on
// the node.
type overtaking struct {
	*MemoryLedger

	mu sync.Mutex
	// Since which revision pending work fits on a node, on which nothing has become free since.
	fits map[seatOf]Revision
	// How many passes of the engine have ended that were asked for the work on a view in which it fitted there.
	passes map[seatOf]int
	// The same when a module's engine last read the state, which is before it decides what has to wait.
	began map[string]map[seatOf]int
	// What came first though something of higher priority fitted, with how many passes that had had.
	overtaken []string
	patience  int
}

func (o *overtaking) Propose(ctx context.Context, p Proposal) (Revision, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, err := o.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	rev, err := o.MemoryLedger.Propose(ctx, p)
	if err == nil {
		o.judge(before, &p)
		o.follow(ctx, before, rev)
	}
	return rev, err
}

func (o *overtaking) ProposeBatch(ctx context.Context, batch []Proposal) (out []Outcome) {
	for _, p := range batch {
		rev, err := o.Propose(ctx, p)
		out = append(out, Outcome{rev, err})
	}
	return out
}

func (o *overtaking) judge(before *State, p *Proposal) {
	for _, do := range p.Do {
		place, ok := do.(Place)
		if !ok {
			continue
		}
		c, n := before.Capsule(place.Capsule), before.Node(place.Node)
		for h := range before.Capsules() {
			at := seatOf{h.ID, n.Node.ID}
			passes := min(o.passes[at], o.began[c.Spec.Module][at])
			if h.Pending() && h.Spec.Module != c.Spec.Module && h.Spec.Priority > c.Spec.Priority && n.Fits(h.Spec) && passes >= o.patience {
				o.overtaken = append(o.overtaken, fmt.Sprintf("%s of %d before %s of %d on %s, after %d passes", c.ID, c.Spec.Priority, h.ID, h.Spec.Priority, n.Node.ID, passes))
			}
		}
	}
}

// follow notes what fits now.
func (o *overtaking) follow(ctx context.Context, before *State, rev Revision) {
	s, _ := o.Snapshot(ctx)
	for n := range s.Nodes() {
		was := before.Node(n.Node.ID)
		more := was == nil || n.Free()[CPU] > was.Free()[CPU]
		for c := range s.Capsules() {
			at := seatOf{c.ID, n.Node.ID}
			fits := c.Pending() && n.Fits(c.Spec)
			if !fits || more {
				delete(o.fits, at)
				delete(o.passes, at)
			}
			if _, known := o.fits[at]; fits && !known {
				o.fits[at] = rev
			}
		}
	}
}

// overtakingOf is the ledger as one engine sees it.
type overtakingOf struct {
	*overtaking
	module string
	_      []int // so that it cannot be compared
}

func (o overtakingOf) Snapshot(ctx context.Context) (*State, error) {
	o.mu.Lock()
	o.began[o.module] = maps.Clone(o.passes)
	o.mu.Unlock()
	return o.overtaking.Snapshot(ctx)
}

// passed counts a pass that was asked for capsules.
func (o *overtaking) passed(view Revision, asked []CapsuleID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, since := range o.fits {
		if since <= view && slices.Contains(asked, at.capsule) {
			o.passes[at]++
		}
	}
}

// strictStep is what happens in a strict world at a time: work comes, something ends, or a node joins.
type strictStep struct {
	after    time.Duration
	kind     int
	module   int
	priority int32
	cpu      int64
	count    int
	pick     int
}

// strictWorld is a world of engines of different modules.
type strictWorld struct {
	steps   []strictStep
	engines int
	plans   []time.Duration
	most    []int
	nodes   []int64
}

func drawStrictWorld(t *rapid.T, waits []time.Duration) (w strictWorld) {
	w.engines = rapid.IntRange(2, 4).Draw(t, "engines")
	for range w.engines {
		w.plans = append(w.plans, rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 30 * time.Millisecond}).Draw(t, "plan"))
		w.most = append(w.most, rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "most"))
	}
	for range rapid.IntRange(1, 3).Draw(t, "nodes") {
		w.nodes = append(w.nodes, rapid.Int64Range(1, 6).Draw(t, "size"))
	}
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		w.steps = append(w.steps, strictStep{
			after: rapid.SampledFrom(waits).Draw(t, "after"), kind: rapid.IntRange(0, 4).Draw(t, "kind"), module: rapid.IntRange(0, w.engines-1).Draw(t, "module"),
			priority: rapid.Int32Range(0, 3).Draw(t, "priority"), cpu: rapid.Int64Range(1, 4).Draw(t, "cpu"), count: rapid.IntRange(1, 4).Draw(t, "count"), pick: rapid.IntRange(0, 99).Draw(t, "pick"),
		})
	}
	return w
}

// run plays the world, and returns what has overtaken and what waits in the end although it fits.
func (w *strictWorld) run(t *testing.T, strict bool, patience int) (overtaken, left []string) {
	synctest.Test(t, func(t *testing.T) {
		l := &overtaking{MemoryLedger: &MemoryLedger{}, fits: map[seatOf]Revision{}, passes: map[seatOf]int{}, began: map[string]map[seatOf]int{}, patience: patience}
		p := Population{Strict: strict}
		for i := range w.engines {
			g := &greedy{claims: only(fmt.Sprint("m", i))}
			e := &Engine{Name: fmt.Sprint("e", i), Ledger: overtakingOf{overtaking: l, module: fmt.Sprint("m", i)}, Navigator: g, MaxPlan: w.most[i]}
			var mu sync.Mutex // a plan that the engine did not wait for is under way when the round ends
			var view Revision
			var asked []CapsuleID
			g.before = func(v *View, pending []*Capsule) {
				time.Sleep(w.plans[i])
				mu.Lock()
				defer mu.Unlock()
				view, asked = v.Revision(), idsOf(pending)
			}
			e.OnRound = func(Round) {
				mu.Lock()
				defer mu.Unlock()
				l.passed(view, asked)
				asked = nil
			}
			p.Engines = append(p.Engines, e)
		}
		for i, size := range w.nodes {
			commit(t, l, PutNode{machine(NodeID(fmt.Sprint("n", i)), size)})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, p.Run(ctx)) })
		for i, s := range w.steps {
			time.Sleep(s.after)
			w.play(t, l, i, &s)
		}
		time.Sleep(time.Minute)
		s := snapshotOf(t, l)
		for c := range s.Capsules() {
			for n := range s.Nodes() {
				if c.Pending() && n.Fits(c.Spec) {
					left = append(left, fmt.Sprintf("%s on %s", c.ID, n.Node.ID))
				}
			}
		}
		cancel()
		running.Wait()
		time.Sleep(time.Second) // plans that the engines did not wait for end
		overtaken = l.overtaken
	})
	return overtaken, left
}

func (w *strictWorld) play(t *testing.T, l *overtaking, i int, s *strictStep) {
	switch s.kind {
	case 0:
		commit(t, l, PutNode{machine(NodeID(fmt.Sprint("more", i)), s.cpu)})
	case 1, 2:
		placed := slices.Collect(func(yield func(CapsuleID) bool) {
			for c := range snapshotOf(t, l).Capsules() {
				if c.Placed() {
					yield(c.ID)
				}
			}
		})
		if len(placed) > 0 {
			_, _ = l.Propose(t.Context(), Proposal{Do: []Commitment{Release{Capsule: placed[s.pick%len(placed)], Final: true}}})
		}
	default:
		var do []Commitment
		for k := range s.count { // work of several engines comes at once
			module := (s.module + k) % w.engines
			spec := ofModule(fmt.Sprint("m", module), s.cpu)
			spec.Priority = (s.priority + int32(k)) % 4
			do = append(do, Submit{IDs: []CapsuleID{CapsuleID(fmt.Sprintf("c%d-%d", i, k))}, Spec: spec})
		}
		commit(t, l, do...)
	}
}

// TestStrictOrder: when all engines are at rest and something happens, no placement of lower priority is committed while work of higher priority
// of another engine fits there. Without Strict some are. And nothing that fits waits in the end.
func TestStrictOrder(t *testing.T) {
	for total := range scale.Reach(t, "overtaken without Strict") {
		rapid.Check(t, func(rt *rapid.T) {
			w := drawStrictWorld(rt, []time.Duration{7300 * time.Millisecond}) // which is not when a class has been parked for ParkFor
			overtaken, left := w.run(t, true, 0)
			require.Empty(rt, overtaken, "%+v", w)
			require.Empty(rt, left, "%+v", w)
			overtaken, _ = w.run(t, false, 0)
			total["overtaken without Strict"] += len(overtaken)
		})
	}
}

// strictly runs a strict population of an engine of low and one of high priority, with work of both for one node, and returns when each capsule
// of low priority is placed: the first has come with the other work, and more come each minute.
func strictly(t *testing.T, high *Engine, specs ...*Spec) (placed []time.Duration) {
	l := &MemoryLedger{}
	low := named("low", l, &greedy{claims: only("low")})
	high.Ledger, high.Name = l, "high"
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"high"}, Spec: specs[0]}, Submit{IDs: []CapsuleID{"low-0"}, Spec: ofModule("low", 1)})
	p := Population{Engines: []*Engine{low, high}, Strict: true, OnError: func(err error) { t.Error(err) }}
	go func() { assert.NoError(t, p.Run(t.Context())) }()
	for i := range 4 {
		start, id := time.Now(), CapsuleID(fmt.Sprint("low-", i))
		if i > 0 {
			commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: ofModule("low", 1)})
		}
		for synctest.Wait(); snapshotOf(t, l).Capsule(id).Pending() && time.Since(start) < time.Minute; synctest.Wait() {
			time.Sleep(100 * time.Millisecond)
		}
		placed = append(placed, time.Since(start).Truncate(time.Second))
		time.Sleep(time.Until(start.Add(time.Minute)))
	}
	return placed
}

// TestStrictIsBounded: an engine that can use nothing, whose navigator panics or hangs, or that is blocked, holds lower priorities back for no
// longer than is said.
func TestStrictIsBounded(t *testing.T) {
	high := ofModule("high", 1)
	high.Priority = 100
	huge := ofModule("high", 100)
	huge.Priority = 100
	s := time.Second
	for name, c := range map[string]struct {
		engine func(stop <-chan struct{}) *Engine
		spec   *Spec
		want   []time.Duration
	}{
		"works":           {func(<-chan struct{}) *Engine { return &Engine{Navigator: &greedy{claims: only("high")}} }, high, []time.Duration{0, 0, 0, 0}},
		"can use nothing": {func(<-chan struct{}) *Engine { return &Engine{Navigator: &greedy{claims: only("high")}} }, huge, []time.Duration{0, 0, 0, 0}},
		"panics": {func(<-chan struct{}) *Engine {
			return &Engine{OnError: func(error) {}, Navigator: &greedy{claims: only("high"), before: func(*View, []*Capsule) { panic("no") }}}
		}, high, []time.Duration{0, 0, 0, 0}},
		"hangs": {func(stop <-chan struct{}) *Engine {
			return &Engine{OnError: func(error) {}, Navigator: &greedy{claims: only("high"), before: func(*View, []*Capsule) { <-stop }}}
		}, high, []time.Duration{11 * s, 20 * s, 0, 0}}, // Plan overruns; then the engine says nothing
		"is blocked": {func(stop <-chan struct{}) *Engine {
			return &Engine{Navigator: &greedy{claims: only("high")}, OnRound: func(Round) { <-stop }}
		}, high, []time.Duration{0, 20 * s, 0, 0}}, // in the round that has placed the work of high priority
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stop := make(chan struct{})
				assert.Equal(t, c.want, strictly(t, c.engine(stop), c.spec))
				close(stop)
			})
		})
	}
}

// TestStrictShareUnderSteadyLoad: beside an engine whose every pass leaves higher work open, lower work gets one pass
// for nine of the other's. Where each pass takes all higher work that there is, it waits for one pass at most.
func TestStrictShareUnderSteadyLoad(t *testing.T) {
	for name, c := range map[string]struct {
		left   int64
		passes int
	}{"each pass leaves work open": {100, 100}, "each pass takes all": {noPriority, 900}} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			table := newPrecedence([]*Engine{{}, {}}, now)
			high, low := &strictShare{table, 0}, &strictShare{table, 1}
			ask := func(view Revision) (planned int) {
				if low.bar(view, now) >= 1 {
					low.took(view, false, noPriority, 1, now)
					return 0
				}
				low.took(view, true, 1, noPriority, now)
				low.passed(view, noPriority, now)
				return 1
			}
			planned := 0
			for i := range Revision(900) { // a new piece of higher work comes before each pass
				high.took(i, true, 100, noPriority, now)
				planned += ask(i)
				high.passed(i, c.left, now)
				planned += ask(i)
			}
			require.Equal(t, c.passes, planned)
		})
	}
}

// TestStrictOrderUnderLoad: while passes are under way and lose bets, nothing that fits is left waiting. What overtakes higher work is only
// logged: work that has waited for eight passes of another engine may overtake what that engine has got since.
func TestStrictOrderUnderLoad(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawStrictWorld(rt, []time.Duration{0, time.Millisecond, 7 * time.Millisecond, 40 * time.Millisecond})
		overtaken, left := w.run(t, true, 2)
		rt.Log("overtaken:", overtaken)
		require.Empty(rt, left, "%+v", w)
	})
}
