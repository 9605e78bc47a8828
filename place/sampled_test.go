package place

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// witness is dumbScore, and remembers whom it has rated since it was last asked.
type witness struct {
	keys []string
	seed uint64
	// What the spec that is asked for wishes of a node's company.
	wishes func(n *orbit.Node) wished
	draft  *orbit.Draft
}

func (w *witness) Score(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
	if value, tie = dumbScore(n, r, s); finite(value) && finite(tie) {
		w.keys = append(w.keys, w.key(n, s, value, tie))
	}
	return value, tie
}

// key sorts as the choice goes.
func (w *witness) key(n *orbit.NodeState, spec *orbit.Spec, value, tie float64) string {
	return fmt.Sprint(btoi(w.draft.LastResort(n, spec)), " ", w.wishes(n.Node).key(n, value, tie, w.seed))
}

// better counts the keys of nodes that are no last resort.
func better(keys []string) (n int) {
	for _, key := range keys {
		n += btoi(key[0] == '0')
	}
	return n
}

// rated returns the keys of the nodes that fit and were rated; none twice.
func (w *witness) rated(t require.TestingT) []string {
	keys := w.keys
	w.keys = nil
	once := map[string]bool{}
	for _, key := range keys {
		require.False(t, once[key], "%q was rated twice", key)
		once[key] = true
	}
	return keys
}

// sampling is two equal samplers at work, and an Exhaustive that knows what there is.
type sampling struct {
	*country
	view     *orbit.View
	all      *drafted[*Exhaustive]
	twins    [2]*drafted[*Sampled]
	serial   int
	enough   int
	remember int
}

func newSampling(t *rapid.T) *sampling {
	s := &sampling{country: newCountry(t)}
	s.enough = rapid.SampledFrom([]int{0, 1, 2, 5, 20, 70}).Draw(t, "enough")
	s.remember = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "remember")
	seed := rapid.SampledFrom([]uint64{0, 1, 77}).Draw(t, "seed")
	filter := rapid.SampledFrom([]Filter{nil, slotless, fresh}).Draw(t, "filter")
	s.all = draftFor(&Exhaustive{Score: &witness{seed: seed}, Seed: seed, Filter: filter})
	for i := range s.twins {
		s.twins[i] = draftFor(&Sampled{Score: &witness{seed: seed}, Seed: seed, Filter: filter, Remember: s.remember, Enough: s.enough})
	}
	s.all.engine.Score.(*witness).draft = &s.all.Draft
	for _, twin := range s.twins {
		twin.engine.Score.(*witness).draft = &twin.Draft
	}
	s.enough = cmp.Or(s.enough, 32)
	s.view = s.country.view(t)
	s.sync(t)
	return s
}

func (s *sampling) sync(t *rapid.T) {
	s.refresh(t, s.view)
	s.all.Sync(s.view)
	for i := range s.twins {
		s.twins[i].Sync(s.view)
	}
}

// ask checks a choice: it is the best of enough nodes, each looked at once; if nothing fits, nothing does.
func (s *sampling) ask(t *rapid.T, spec *orbit.Spec) (choices []orbit.Choice, ok bool) {
	found := wishesBy(&s.all.Draft, spec)
	s.all.engine.Score.(*witness).wishes = found
	_, wantErr := s.all.best(spec)
	feasible := better(s.all.engine.Score.(*witness).rated(t))
	var first []string
	for i := range s.twins {
		s.twins[i].engine.Score.(*witness).wishes = found
		choice, err := s.twins[i].best(spec)
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
		rated := s.twins[i].engine.Score.(*witness).rated(t)
		if i == 0 {
			first = rated
		}
		require.Equal(t, first, rated, "twins do the same")
		require.GreaterOrEqual(t, better(rated), min(s.enough, feasible))
		require.LessOrEqual(t, better(rated), min(s.enough+btoi(s.remember > 0)*(1+s.remember), feasible))
		if choices = append(choices, choice); err != nil {
			continue
		}
		value, tie := dumbScore(choice.Node, s.view.Report(choice.Node), spec)
		here := found(choice.Node.Node)
		require.Equal(t, value+here.onNode+here.inDomains, choice.Value)
		key := s.twins[i].engine.Score.(*witness).key(choice.Node, spec, value, tie)
		require.Contains(t, rated, key)
		for _, other := range rated {
			require.LessOrEqual(t, key, other)
		}
		require.True(t, choice.Node.Fits(spec))
		set, _ := choice.Node.PickDevices(spec)
		require.Equal(t, set, choice.Devices)
	}
	return choices, wantErr == nil
}

// plan asks and reserves.
func (s *sampling) plan(t *rapid.T) {
	spec := rapid.SampledFrom(s.specs).Draw(t, "spec")
	if rapid.IntRange(0, 9).Draw(t, "a spec that no ledger has seen") == 0 {
		spec = s.invent(t)
	}
	for range rapid.SampledFrom([]int{1, 3, 20}).Draw(t, "capsules") {
		choices, ok := s.ask(t, spec)
		if !ok {
			return
		}
		s.serial++
		k := &orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("k", s.serial)), Spec: spec}
		s.all.take(k, choices[0])
		require.Equal(t, s.twins[0].take(k, choices[0]), s.twins[1].take(k, choices[1]))
	}
}

// nominee asks for one that waits, with the room that is nominated for it.
func (s *sampling) nominee(t *rapid.T) {
	c := s.waiting(t)
	if c == nil {
		return
	}
	drafts := []*orbit.Draft{&s.all.Draft, &s.twins[0].Draft, &s.twins[1].Draft}
	for _, d := range drafts {
		d.LookAs(c)
	}
	s.ask(t, c.Spec)
	for _, d := range drafts {
		d.LookAs(nil)
	}
	s.ask(t, c.Spec)
}

func (s *sampling) rollback(t *rapid.T) {
	mark := rapid.IntRange(0, s.twins[0].Checkpoint()).Draw(t, "mark")
	s.all.Rollback(mark)
	for i := range s.twins {
		s.twins[i].Rollback(mark)
	}
}

// check: those that can be drawn are those that are there.
func (s *sampling) check(t *rapid.T) {
	for _, e := range s.twins {
		e.engine.sync(&e.Draft)
	}
	require.Len(t, s.twins[0].engine.order, s.view.State().NodeCount())
	for _, slot := range s.twins[0].engine.order {
		require.NotNil(t, s.view.State().NodeByIndex(int(slot)))
	}
}

// Whatever happens, Sampled chooses the best of as many nodes that fit as are enough, or of all that do, and of
// those that it remembers; it looks at none twice. Last resorts are not counted. The same calls make the same choices. That nothing fits is
// never said in error.
func TestSampledChoosesTheBestOfEnough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSampling(t)
		actions := s.actions()
		for name, f := range map[string]func(*rapid.T){
			"": s.check, "plan": s.plan, "plan more": s.plan, "plan even more": s.plan, "nominee": s.nominee, "rollback": s.rollback, "sync": s.sync, "sync more": s.sync,
		} {
			actions[name] = f
		}
		t.Repeat(actions)
	})
}

// flock returns a view of nodes that are all alike, and a spec that the ledger knows.
func flock(t *testing.T, n int) (*orbit.View, *orbit.Spec) {
	l := &orbit.MemoryLedger{}
	for i := range n {
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprint("n", i)), int64(i))})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"k"}, Spec: &orbit.Spec{}})
	v, _ := viewOf(t, l, nil)
	return v, v.State().Capsule("k").Spec
}

// All nodes that fit are drawn alike often, and another seed draws them in another order.
func TestSampledDrawsAllNodesAlike(t *testing.T) {
	v, spec := flock(t, 40)
	var orders [2][]orbit.NodeID
	for seed := range orders {
		e, drawn := draftFor(&Sampled{Enough: 1, Seed: uint64(seed)}), map[orbit.NodeID]int{}
		e.Sync(v)
		for range 4000 {
			choice, err := e.best(spec)
			require.NoError(t, err)
			drawn[choice.Node.Node.ID]++
			orders[seed] = append(orders[seed], choice.Node.Node.ID)
		}
		require.Len(t, drawn, 40)
		for id, n := range drawn {
			assert.InDelta(t, 100, n, 50, "%s was drawn %d times of 4000", id, n) // five sigma
		}
	}
	require.NotEqual(t, orders[0], orders[1])
}

// What Sampled remembers, it looks at again: where nothing changes, its choice never gets worse, and is the best
// of all before long. One that remembers nothing is not so lucky.
func TestSampledRemembers(t *testing.T) {
	v, spec := flock(t, 200)
	full := score.Func(func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
		return float64(n.Free()[orbit.CPU]), 0
	})
	for remember := range 3 {
		e, last, worse := draftFor(&Sampled{Score: full, Enough: 2, Seed: 1, Remember: remember}), 1e9, 0
		e.Sync(v)
		for range 1000 {
			choice, err := e.best(spec)
			require.NoError(t, err)
			worse += btoi(choice.Value > last)
			last = choice.Value
		}
		require.Equal(t, remember == 0, worse > 0)
		require.Equal(t, remember == 0, last > 0)
	}
}
