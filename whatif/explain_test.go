package whatif_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/whatif"
)

// world draws a small constellation in which much is full, held, nominated, cordoned or lost.
func world(t *rapid.T) *orbit.State {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	try := func(do ...orbit.Commitment) bool {
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
		return err == nil
	}
	small := rapid.Int64Range(0, 4)
	nodes := rapid.IntRange(1, 5).Draw(t, "nodes")
	zones := rapid.IntRange(1, 3).Draw(t, "zones")
	for i := range nodes {
		devices := orbit.Devices{Model: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "model"), Count: rapid.IntRange(0, 2).Draw(t, "devices")}
		if devices.Count > 0 {
			devices.Unhealthy = orbit.DeviceSet(rapid.IntRange(0, 1).Draw(t, "unhealthy"))
		}
		labels := map[string]string{"rack": fmt.Sprint(i % 2), "disk": rapid.SampledFrom([]string{"ssd", "hdd"}).Draw(t, "disk")}
		if rapid.IntRange(0, 7).Draw(t, "in a zone") > 0 {
			labels["zone"] = fmt.Sprint("z", i%zones)
		}
		require.True(t, try(orbit.PutNode{Node: orbit.Node{
			ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: small.Draw(t, "cpu"), orbit.Memory: small.Draw(t, "memory")}, Labels: labels, Devices: devices, Extras: drawExtras(t, 0),
		}}))
	}
	at := rapid.IntRange(0, nodes-1)
	for i := range rapid.IntRange(0, 8).Draw(t, "capsules") {
		id, spec := orbit.CapsuleID(fmt.Sprint("c", i)), drawSpec(t)
		if spec.Near, spec.Nears = (orbit.Near{}), nil; rapid.Bool().Draw(t, "member") {
			spec.Group = "db"
		}
		spec.Movable = rapid.Bool().Draw(t, "movable")
		if try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}) {
			s, _ := l.Snapshot(context.Background())
			if n := s.Node(nodeID(at.Draw(t, "at"))); n != nil {
				devices, _ := n.PickDevices(spec)
				try(orbit.Place{Capsule: id, Node: n.Node.ID, Devices: devices})
			}
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "holds") {
		try(orbit.Hold{ID: orbit.HoldID(fmt.Sprint("h", i)), Node: nodeID(at.Draw(t, "at")), Room: orbit.Resources{orbit.CPU: small.Draw(t, "held")}, Ends: time.Unix(rapid.Int64Range(1, 5).Draw(t, "ends"), 0)})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "nominations") {
		id := orbit.CapsuleID(fmt.Sprint("waits", i))
		try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{Priority: 5, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}},
			orbit.Nominate{Capsule: id, Ends: time.Unix(9, 0), Parts: []orbit.NominatedRoom{{Node: nodeID(at.Draw(t, "at")), Room: orbit.Resources{orbit.CPU: 1 + small.Draw(t, "claimed")}}}})
	}
	s, _ := l.Snapshot(context.Background())
	for i := range nodes {
		if state := rapid.SampledFrom([]orbit.Condition{orbit.Ready, orbit.Ready, orbit.Cordoned, orbit.Lost}).Draw(t, "state"); state != orbit.Ready {
			n := *s.Node(nodeID(i)).Node
			n.State = state
			try(orbit.PutNode{Node: n})
		}
	}
	s, _ = l.Snapshot(context.Background())
	return s
}

// drawExtras draws what a node has, or what a spec takes.
func drawExtras(t *rapid.T, least int64) (out []orbit.Extra) {
	for _, name := range []string{"ip", "key"} {
		if rapid.IntRange(0, 3).Draw(t, "extra") == 0 {
			out = append(out, orbit.Extra{Name: name, Amount: rapid.Int64Range(least, 3).Draw(t, "amount")})
		}
	}
	return out
}

func nodeID(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprint("n", i)) }

func drawSpec(t *rapid.T) *orbit.Spec {
	small := rapid.Int64Range(0, 4)
	s := &orbit.Spec{Priority: int32(rapid.IntRange(0, 3).Draw(t, "priority"))}
	s.Envelope.Reservation = orbit.Resources{orbit.CPU: small.Draw(t, "wants cpu"), orbit.Memory: small.Draw(t, "wants memory")}
	if rapid.IntRange(0, 2).Draw(t, "with devices") == 0 {
		s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, "wants devices"), Milli: rapid.SampledFrom([]int{400, 1000}).Draw(t, "milli")}
		if rapid.Bool().Draw(t, "picky") {
			s.Devices.Models = []string{"a"}
		}
	}
	s.Extras = drawExtras(t, 1)
	if rapid.Bool().Draw(t, "requires") {
		s.Require = append(s.Require, orbit.Predicate{Key: "disk", Op: "In", Values: []string{"ssd"}})
	}
	if rapid.IntRange(0, 3).Draw(t, "far") == 0 {
		s.Require = append(s.Require, orbit.Predicate{Key: "rack", Op: "NotIn", Values: []string{"0"}})
	}
	switch rapid.IntRange(0, 7).Draw(t, "alternatives") {
	case 0:
		s.Require = append(s.Require, orbit.Predicate{Op: "AnyOf", Terms: [][]orbit.Predicate{
			{{Key: "disk", Op: "In", Values: []string{"ssd"}}, {Key: "rack", Op: "In", Values: []string{"1"}}}, {{Key: orbit.NodeKey, Op: "In", Values: []string{"n0"}}}}})
	case 1:
		s.Require = append(s.Require, orbit.Predicate{Key: orbit.NodeKey, Op: "NotIn", Values: []string{"n0", "n1"}})
	}
	if rapid.IntRange(0, 4).Draw(t, "near") == 0 {
		s.Near = orbit.Near{Group: "db", Level: "rack"}
	}
	for rapid.IntRange(0, 5).Draw(t, "near too") == 0 && len(s.Nears) < 3 {
		near := orbit.Near{Group: "db", Level: rapid.SampledFrom([]string{"zone", "rack", orbit.NodeKey}).Draw(t, "level")}
		if rapid.IntRange(0, 3).Draw(t, "of none") == 0 {
			near.Group = "absent"
		}
		s.Nears = append(s.Nears, near)
	}
	if rapid.IntRange(0, 2).Draw(t, "rules") == 0 {
		drawRules(t, s)
	}
	return s
}

// drawRules gives a spec rules of company about group db, in which it mostly is itself.
func drawRules(t *rapid.T, s *orbit.Spec) {
	level := rapid.SampledFrom([]string{"zone", "zone", "rack", orbit.NodeKey})
	if rapid.IntRange(0, 4).Draw(t, "outside") > 0 {
		s.Group = "db"
		for range rapid.IntRange(0, 2).Draw(t, "even") {
			e := orbit.Even{Group: "db", Level: level.Draw(t, "level"), MaxSkew: rapid.IntRange(0, 2).Draw(t, "skew"), MinDomains: rapid.IntRange(0, 3).Draw(t, "domains")}
			if e.Level == "zone" && rapid.IntRange(0, 2).Draw(t, "declared") == 0 {
				e.Domains = rapid.SampledFrom([][]string{{"z0", "z1"}, {"z0", "z1", "z2", "z3"}, {"z2"}}).Draw(t, "names")
			}
			s.Even = append(s.Even, e)
		}
	}
	if len(s.Even) == 0 || rapid.IntRange(0, 2).Draw(t, "apart") == 0 {
		s.Apart = append(s.Apart, orbit.Apart{Group: "db", Level: level.Draw(t, "level")})
	}
}

// TestExplainCounts: the counts add up to all nodes, a node fits exactly if a draft says so, and an example has just the
// reasons that it is an example of.
func TestExplainCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, spec := world(t), drawSpec(t)
		e, err := whatif.Explain(context.Background(), state, spec)
		require.NoError(t, err)
		require.Equal(t, state.NodeCount(), e.Nodes)
		sum := e.Fits
		for _, w := range e.Why {
			require.NotEmpty(t, w.Reasons)
			sum += w.Nodes
		}
		require.Equal(t, e.Nodes, sum)

		view, draft := &orbit.View{}, &orbit.Draft{}
		require.NoError(t, view.Refresh(context.Background(), &orbit.MemoryLedger{Start: state}, nil, time.Now()))
		draft.Sync(view)
		fits := 0
		for n := range draft.Nodes() {
			if draft.Misfit(n, e.Spec) == (orbit.Misfit{}) {
				fits++
			}
		}
		require.Equal(t, fits, e.Fits)
		require.NotEmpty(t, e.String())
	})
}

// TestFixesAreSound: whatever is proposed as a fix commits, on the node that it names.
func TestFixesAreSound(t *testing.T) {
	scale.Sequential(t)
	for seen := range scale.Reach(t, "less", "less extras", "devices", "drop", "model", "not near", "uncordon", "await", "outlast", "evict", "move", "add", "add elsewhere", "add in a new domain", "add a larger one", "less, ruled") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				soundFixes(t, seen)
			}
		})
	}
}

// worlds is how many worlds a property looks at in one run, so that rare ones are among them.
const worlds = 10

func soundFixes(t *rapid.T, seen map[string]int) {
	state, spec := world(t), drawSpec(t)
	e, err := whatif.Explain(context.Background(), state, spec)
	require.NoError(t, err)
	if e.Fits > 0 {
		require.Empty(t, e.Fixes)
		return
	}
	plain := !slices.ContainsFunc(spec.Require, func(p orbit.Predicate) bool { return p.Key == orbit.NodeKey || p.Op == "AnyOf" })
	if plain && e.TooLarge != "" && spec.Group == "" && len(spec.Apart)+len(spec.Nears) == 0 && spec.Near == (orbit.Near{}) {
		require.True(t, slices.ContainsFunc(e.Fixes, func(f whatif.Fix) bool { return f.Add != nil }), "%s", e)
	}
	for _, f := range e.Fixes {
		if f.Add != nil && f.Like == "" { // it has no more than is asked for
			require.NotEmpty(t, e.TooLarge, "%s", f.String())
			require.Equal(t, e.Spec.Envelope.Reservation, f.Add.Capacity)
			require.Equal(t, e.Spec.Devices.Count, f.Add.Devices.Count)
			require.ElementsMatch(t, e.Spec.Extras, f.Add.Extras)
		}
		next, err := state.With(f.Proposal("new"))
		require.NoError(t, err, "%s", f.String())
		require.Equal(t, f.Node, next.Capsule("new").Node)
		require.NoError(t, next.Verify())
		for _, id := range f.Evict {
			require.True(t, next.Capsule(id).Pending(), "%s evicts %s in vain", f.String(), id)
		}
		for _, m := range f.Move {
			require.NotEqual(t, f.Node, m.To)
			require.Equal(t, m.To, next.Capsule(m.Capsule).Node)
		}
		count(seen, &f)
		if f.Less != (orbit.Resources{}) && slices.ContainsFunc(e.Why, func(w whatif.Why) bool { return slices.ContainsFunc(w.Reasons, ruled) }) {
			seen["less, ruled"]++
		}
		fork := &orbit.MemoryLedger{Start: state}
		_, err = fork.Propose(context.Background(), f.Proposal("new"))
		require.NoError(t, err)
	}
}

func ruled(r whatif.Reason) bool { return r.Kind == whatif.Ruled }

func count(seen map[string]int, f *whatif.Fix) {
	for kind, is := range map[string]bool{
		"less": f.Less != (orbit.Resources{}), "less extras": len(f.LessExtras) > 0, "devices": f.FewerDevices+f.LessMilli > 0, "drop": len(f.Drop) > 0, "model": f.AcceptModel != "",
		"not near": len(f.NotNear) > 0, "uncordon": f.Uncordon != "", "await": len(f.Await) > 0, "outlast": len(f.Outlast) > 0, "evict": len(f.Evict) > 0, "move": len(f.Move) > 0, "add": f.Add != nil,
		"add a larger one": f.Add != nil && f.Like == "",
		"add elsewhere":    len(f.In) > 0, "add in a new domain": slices.ContainsFunc(f.In, func(d whatif.InDomain) bool { return d.New }),
	} {
		if is {
			seen[kind]++
		}
	}
}

// TestAddsALargerNode: work that is larger than every node is told what a node would have to have, of what it asks for only.
func TestAddsALargerNode(t *testing.T) {
	l := &orbit.MemoryLedger{}
	_, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{
		ID: "n", Capacity: orbit.Resources{orbit.CPU: 64000, orbit.Memory: 256 << 30}, Labels: map[string]string{"disk": "ssd", "zone": "a"},
		Devices: orbit.Devices{Model: "A100", Count: 2}, Extras: []orbit.Extra{{Name: "seats", Amount: 3}},
	}}, orbit.Submit{IDs: []orbit.CapsuleID{"db"}, Spec: &orbit.Spec{Group: "db"}}, orbit.Place{Capsule: "db", Node: "n"}}})
	require.NoError(t, err)
	state, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	asks := func(cores, gib int64) (r orbit.Envelope) {
		r.Reservation = orbit.Resources{orbit.CPU: cores * 1000, orbit.Memory: gib << 30}
		return r
	}
	for want, spec := range map[string]*orbit.Spec{
		"add a node with at least 90 cores and 64 GiB of memory": {Envelope: asks(90, 64)},
		"add a node with at least 90 cores":                      {Envelope: asks(90, 0)},
		"add a node with at least 1 core and 4 devices":          {Envelope: asks(1, 0), Devices: orbit.DeviceRequest{Count: 4, Milli: 500}},
		`add a node with at least 90 cores, 1 GiB of memory, 1 device of model "A100" and 2 of "seats", labelled like n`: {
			Envelope: asks(90, 1), Devices: orbit.DeviceRequest{Count: 1, Milli: 1000, Models: []string{"A100"}}, Extras: []orbit.Extra{{Name: "seats", Amount: 2}},
			Require: []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}},
		"add a node with at least 90 cores, labelled like n, in a new zone": {Envelope: asks(90, 0), Apart: []orbit.Apart{{Group: "db", Level: "zone"}}},
		"add a node like n": {Envelope: asks(64, 256), Group: "db", Apart: []orbit.Apart{{Group: "db", Level: orbit.NodeKey}}},
	} {
		e, err := whatif.Explain(t.Context(), state, spec)
		require.NoError(t, err)
		require.NotEmpty(t, e.Fixes, want)
		fix := e.Fixes[len(e.Fixes)-1]
		require.Equal(t, want, fix.String())
		_, err = state.With(fix.Proposal("new"))
		require.NoError(t, err)
	}
}

// TestFixesAreMinimal compares with brute force: where a fix changes the request or a cordon alone, no proper part of the same change
// makes any node take the capsule; no fix takes all of a resource away; and where only one thing is in the way of some node that has
// something of it, there is a fix that changes only that.
func TestFixesAreMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, spec := world(t), drawSpec(t)
		e, err := whatif.Explain(context.Background(), state, spec)
		require.NoError(t, err)
		for i := range e.Fixes {
			f := &e.Fixes[i]
			nothingLess(t, state, e.Spec, f)
			for d, asked := range e.Spec.Envelope.Reservation {
				require.Equal(t, asked > 0, f.Spec.Envelope.Reservation[d] > 0, "%s: nothing is left of dimension %d", f.String(), d)
			}
			if f.Add != nil || len(f.Await)+len(f.Outlast)+len(f.Evict)+len(f.Move) > 0 {
				continue
			}
			for _, part := range partsOf(e.Spec, f) {
				require.Empty(t, takers(t, state, part.spec, part.uncordon), "%s: a part of it is enough\n%v\n%+v", f.String(), e, part.spec)
			}
		}
		if e.Fits > 0 {
			return
		}
		for _, w := range e.Why {
			if w.Reasons[0].Kind == whatif.Requirement && len(e.Spec.Even) > 0 {
				continue // without a requirement there may be more domains to be even among, which close others
			}
			if r := w.Reasons[0]; r.Kind == whatif.Resource {
				n, nominated := state.Node(w.Example), false
				for range n.Nominated {
					nominated = true
				}
				if n.Free()[r.Arg] <= 0 || nominated {
					continue // there is nothing of it that the work could ask for instead, or not for this work
				}
			}
			if len(w.Reasons) == 1 && w.Reasons[0].Kind != whatif.Lost && w.Reasons[0].Kind != whatif.Nominated && w.Reasons[0].Kind != whatif.Ruled {
				require.True(t, slices.ContainsFunc(e.Fixes, func(f whatif.Fix) bool { return f.Node == w.Example && changes(&f) == 1 }),
					"%s alone is in the way of %s, and no fix is for that:\n%v", w.Reasons[0], w.Example, e)
			}
		}
	})
}

// nothingLess checks on the node that a fix names that the ledger refuses the fix without any one of its commitments, be it a hold or a
// nomination that ends, an eviction or a node that is put, and with one unit more of anything that it asks less of.
func nothingLess(t require.TestingT, state *orbit.State, asked *orbit.Spec, f *whatif.Fix) {
	whole := f.Proposal("new").Do
	for i, do := range whole {
		switch do.(type) {
		case orbit.Submit, orbit.Place:
			continue
		}
		_, err := state.With(orbit.Proposal{Do: slices.Delete(slices.Clone(whole), i, i+1)})
		require.Error(t, err, "%s: it commits without %+v", f.String(), do)
	}
	more := func(change func(*orbit.Spec)) {
		spec := *f.Spec
		change(&spec)
		shared, err := spec.Share()
		require.NoError(t, err)
		var do []orbit.Commitment
		for _, step := range whole {
			switch step := step.(type) {
			case orbit.Submit:
				step.Spec = shared
				do = append(do, step)
			case orbit.Place:
				next, err := state.With(orbit.Proposal{Do: append(slices.Clone(do), orbit.PutNode{Node: orbit.Node{ID: "aside"}})})
				require.NoError(t, err)
				step.Devices, _ = next.Node(f.Node).PickDevices(shared)
				do = append(do, step)
			default:
				do = append(do, step)
			}
		}
		_, err = state.With(orbit.Proposal{Do: do})
		require.Error(t, err, "%s: %+v commits too", f.String(), spec.Envelope.Reservation)
	}
	for d, less := range f.Less {
		if less > 0 {
			more(func(s *orbit.Spec) { s.Envelope.Reservation[d]++ })
		}
	}
	for _, less := range f.LessExtras {
		more(func(s *orbit.Spec) { s.Extras = setExtra(s.Extras, less.Name, 1) })
	}
	if f.FewerDevices > 0 && f.Spec.Devices.Count > 0 {
		more(func(s *orbit.Spec) { s.Devices.Count++ })
	}
	if f.LessMilli > 0 && f.Spec.Devices.Count > 0 {
		more(func(s *orbit.Spec) { s.Devices.Milli++ })
	}
}

// setExtra returns extras with more of a name.
func setExtra(extras []orbit.Extra, name string, more int64) []orbit.Extra {
	extras = slices.Clone(extras)
	for i := range extras {
		if extras[i].Name == name {
			extras[i].Amount += more
			return extras
		}
	}
	return append(extras, orbit.Extra{Name: name, Amount: more})
}

// part is what a fix would be with one thing less.
type part struct {
	spec     *orbit.Spec
	uncordon orbit.NodeID
}

// changes counts the things that a fix changes.
func changes(f *whatif.Fix) (n int) {
	for _, less := range f.Less {
		if less > 0 {
			n++
		}
	}
	n += len(f.Drop)
	n += len(f.LessExtras) + len(f.NotNear)
	for _, is := range []bool{f.FewerDevices+f.LessMilli > 0 || f.AcceptModel != "", f.Uncordon != ""} {
		if is {
			n++
		}
	}
	return n
}

// partsOf returns each change that is smaller by one thing, or by one unit of one thing.
func partsOf(of *orbit.Spec, f *whatif.Fix) (out []part) {
	with := func(change func(*orbit.Spec)) {
		spec := *f.Spec
		spec.Require = slices.Clone(spec.Require)
		change(&spec)
		out = append(out, part{&spec, f.Uncordon})
	}
	for d, less := range f.Less {
		if less > 0 {
			with(func(s *orbit.Spec) { s.Envelope.Reservation[d] = of.Envelope.Reservation[d] })
		}
	}
	for _, less := range f.LessExtras {
		with(func(s *orbit.Spec) { s.Extras = setExtra(s.Extras, less.Name, less.Amount) })
	}
	for _, p := range f.Drop {
		with(func(s *orbit.Spec) { s.Require = append(s.Require, p) })
	}
	if f.FewerDevices+f.LessMilli > 0 || f.AcceptModel != "" {
		with(func(s *orbit.Spec) { s.Devices = of.Devices })
	}
	for _, near := range f.NotNear {
		with(func(s *orbit.Spec) {
			s.Near, s.Nears = orbit.Near{}, nil
			for kept := range of.AllNear {
				switch {
				case kept != near && slices.Contains(f.NotNear, kept):
				case kept == of.Near:
					s.Near = kept
				default:
					s.Nears = append(s.Nears, kept)
				}
			}
		})
	}
	if f.Uncordon != "" {
		out = append(out, part{f.Spec, ""})
	}
	return out
}

// takers returns the nodes that take a spec, once a node takes new work again.
func takers(t require.TestingT, state *orbit.State, spec *orbit.Spec, uncordon orbit.NodeID) (out []orbit.NodeID) {
	if n := state.Node(uncordon); n != nil {
		node := *n.Node
		node.State = orbit.Ready
		next, err := state.With(orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: node}}})
		require.NoError(t, err)
		state = next
	}
	e, err := whatif.Explain(context.Background(), state, spec)
	require.NoError(t, err)
	if e.Fits == 0 {
		return nil
	}
	for n := range state.Nodes() {
		if shared, err := spec.Share(); err == nil && n.Fits(shared) {
			out = append(out, n.Node.ID)
		}
	}
	return out
}

// Changes of the request come smallest first: the fewest changes, and of equally many the smallest part of the request. No
// change leaves nothing of a resource.
func TestChangesComeSmallestFirst(t *testing.T) {
	const larger = "add a node with at least 0.01 cores and 10 bytes of memory"
	for _, c := range []struct {
		nodes [][2]int64 // their cpu and memory
		want  []string
	}{
		{[][2]int64{{0, 10}, {5, 0}, {9, 10}}, []string{"ask for 0.001 cores less: then node n2 takes it", larger}},
		{[][2]int64{{1, 10}, {1, 10}, {1, 10}, {10, 9}}, []string{"ask for 1 byte of memory less: then node n3 takes it", "ask for 0.009 cores less: then node n0 takes it", larger}},
		{[][2]int64{{1, 10}, {5, 9}}, []string{"ask for 0.009 cores less: then node n0 takes it", "ask for 0.005 cores less and ask for 1 byte of memory less: then node n1 takes it", larger}},
		{[][2]int64{{0, 10}, {5, 0}}, []string{larger}},
	} {
		l := &orbit.MemoryLedger{}
		for i, has := range c.nodes {
			commit(t, l, orbit.PutNode{Node: orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: has[0], orbit.Memory: has[1]}}})
		}
		e, err := whatif.Explain(t.Context(), snapshot(t, l), &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 10, orbit.Memory: 10}}})
		require.NoError(t, err)
		var texts []string
		for i := range e.Fixes {
			texts = append(texts, e.Fixes[i].String())
		}
		require.Equal(t, c.want, texts)
	}
}

// Nodes that no change of the request helps do not use up the tries, however many sets of reasons they have.
func TestNodesThatNothingHelpsUseNoTries(t *testing.T) {
	l := &orbit.MemoryLedger{}
	spec := wants(1, 0)
	for k := range 8 {
		spec.Require = append(spec.Require, orbit.Predicate{Key: fmt.Sprint("k", k), Op: "Exists"})
	}
	put := func(lacks int, taints ...orbit.Taint) {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", lacks, len(taints))), Capacity: orbit.Resources{orbit.CPU: 10}, Labels: map[string]string{}, Taints: taints}
		for k := range 8 {
			if lacks>>k&1 == 0 {
				n.Labels[fmt.Sprint("k", k)] = "yes"
			}
		}
		commit(t, l, orbit.PutNode{Node: n})
	}
	for lacks := range 256 {
		put(lacks, orbit.Taint{Key: "t", Effect: "NoSchedule"})
	}
	put(0x1f)
	e, err := whatif.Explain(t.Context(), snapshot(t, l), spec)
	require.NoError(t, err)
	require.Len(t, e.Fixes, 1, "%v", e)
	require.Len(t, e.Fixes[0].Drop, 5)
}

// TestMovesMakeRoom: a daemon has one node where it may run. That node is full of work of equal priority that may move to an
// empty node, and the explanation says so, and that nothing makes such moves by itself.
func TestMovesMakeRoom(t *testing.T) {
	cpu := func(n int64) orbit.Envelope { return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n}} }
	daemon := &orbit.Spec{Module: "daemon", Envelope: cpu(500), Require: []orbit.Predicate{{Key: orbit.NodeKey, Op: "In", Values: []string{"n0"}}}}
	for _, movable := range []bool{true, false} {
		l := &orbit.MemoryLedger{}
		do := []orbit.Commitment{
			orbit.PutNode{Node: orbit.Node{ID: "n0", Capacity: cpu(4000).Reservation}},
			orbit.PutNode{Node: orbit.Node{ID: "n1", Capacity: cpu(4000).Reservation}},
			orbit.PutNode{Node: orbit.Node{ID: "n2", Capacity: cpu(400).Reservation}},
			orbit.Submit{IDs: []orbit.CapsuleID{"small"}, Spec: &orbit.Spec{Module: "web", Envelope: cpu(400), Movable: movable}},
			orbit.Submit{IDs: []orbit.CapsuleID{"w0", "w1", "w2"}, Spec: &orbit.Spec{Module: "web", Envelope: cpu(1200), Movable: movable}},
		}
		for _, id := range []orbit.CapsuleID{"small", "w0", "w1", "w2"} {
			do = append(do, orbit.Place{Capsule: id, Node: "n0"})
		}
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
		require.NoError(t, err)
		state, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		e, err := whatif.Explain(t.Context(), state, daemon)
		require.NoError(t, err)
		at := slices.IndexFunc(e.Fixes, func(f whatif.Fix) bool { return len(f.Move) > 0 })
		require.Equal(t, movable, at >= 0, "%v", e)
		if movable {
			require.Equal(t, []whatif.Move{{Capsule: "w0", To: "n1"}}, e.Fixes[at].Move)
			require.Contains(t, e.String(), `move "w0" to node n1: then node n0 takes it`)
			next, err := state.With(e.Fixes[at].Proposal("d"))
			require.NoError(t, err)
			require.Equal(t, []orbit.NodeID{"n0", "n1"}, []orbit.NodeID{next.Capsule("d").Node, next.Capsule("w0").Node})
		}
	}
}

// Explain and the reasons of engines judge alike where moves may help: if Explain finds a fix by moves, the count is not 0,
// and the node that Explain empties is one of those counted, although one of the same reasons lacks less.
func TestExplainMovesWhereNoFitCountsMovable(t *testing.T) {
	l := &orbit.MemoryLedger{}
	node := func(id orbit.NodeID, cpu int64) orbit.Commitment {
		return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: cpu}}}
	}
	spec := func(cpu int64, movable bool) *orbit.Spec {
		return &orbit.Spec{Movable: movable, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
	}
	do := []orbit.Commitment{node("fixed", 10), node("movable", 10), node("small", 4),
		orbit.Submit{IDs: []orbit.CapsuleID{"f"}, Spec: spec(7, false)}, orbit.Place{Capsule: "f", Node: "fixed"},
		orbit.Submit{IDs: []orbit.CapsuleID{"m1", "m2"}, Spec: spec(4, true)}, orbit.Place{Capsule: "m1", Node: "movable"}, orbit.Place{Capsule: "m2", Node: "movable"}}
	_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
	require.NoError(t, err)
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	e, err := whatif.Explain(t.Context(), s, spec(5, false))
	require.NoError(t, err)
	require.Contains(t, e.String(), `to node small: then node movable takes it`)
	view, draft := &orbit.View{}, &orbit.Draft{}
	require.NoError(t, view.Refresh(t.Context(), l, nil, time.Unix(0, 0)))
	draft.Sync(view)
	require.Equal(t, 1, draft.Diagnose(spec(5, false), nil, orbit.Misfit{}).Movable())
}

// If only a budget forbids the evictions that would make room, the explanation says so. Nothing is said where something else is in
// the way as well, or where a budget lets others be evicted or moved.
func TestExplainNamesTheBudgetInTheWay(t *testing.T) {
	for _, c := range []struct {
		name             string
		missing, more    int // of the budget, and nodes with a capsule of no budget
		priority, asks   int64
		kept, says, fixe string
	}{
		{"forbidden", 0, 0, 9, 4, `evicting "web" on node n would make room and is forbidden: budget "b": 0 healthy of 1 after this, 1 needed`, "", ""},
		{"allowed", 1, 0, 9, 4, "", "", `evict "web"`},
		{"others may be evicted", 0, 1, 9, 4, "", "", `evict "sum"`},
		{"no higher priority", 0, 0, 0, 4, "", "", ""},
		{"too large", 0, 0, 9, 9, "", "no node is that large", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			node := func(id orbit.NodeID) orbit.PutNode {
				return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 8}}}
			}
			commit(t, l, node("n"), orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 1, Missing: c.missing}},
				orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Group: "web", Envelope: wants(8, 0).Envelope}}, orbit.Place{Capsule: "web", Node: "n"})
			for range c.more {
				commit(t, l, node("m"), orbit.Submit{IDs: []orbit.CapsuleID{"sum"}, Spec: wants(8, 5)}, orbit.Place{Capsule: "sum", Node: "m"}) // web would be the better victim
			}
			e, err := whatif.Explain(t.Context(), snapshot(t, l), wants(c.asks, int32(c.priority)))
			require.NoError(t, err)
			if c.kept == "" {
				require.Empty(t, e.Kept)
			} else {
				require.Contains(t, e.Kept, c.kept)
				require.Contains(t, e.String(), c.kept)
			}
			require.Contains(t, e.String(), c.says)
			require.Contains(t, e.String(), c.fixe)
		})
	}
}
