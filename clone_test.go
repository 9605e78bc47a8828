package orbit

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// full returns a value of which every exported field is set and every list and map has two elements. Terms hold no terms.
func full[T any](t *testing.T) *T {
	var v T
	n := int64(0)
	var set func(v reflect.Value, depth int)
	set = func(v reflect.Value, depth int) {
		n++
		switch v.Kind() {
		case reflect.String:
			v.SetString(fmt.Sprint("s", n))
		case reflect.Int, reflect.Int32, reflect.Int64:
			v.SetInt(n)
		case reflect.Uint8, reflect.Uint16, reflect.Uint64:
			v.SetUint(uint64(n))
		case reflect.Float64:
			v.SetFloat(float64(n))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					set(v.Field(i), depth)
				}
			}
		case reflect.Array:
			for i := range v.Len() {
				set(v.Index(i), depth)
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			set(v.Elem(), depth)
		case reflect.Slice:
			if depth < 4 {
				v.Set(reflect.MakeSlice(v.Type(), 2, 9))
				set(v.Index(0), depth+1)
				set(v.Index(1), depth+1)
			}
		case reflect.Map:
			v.Set(reflect.ValueOf(map[string]string{"a": "b", "c": "d"}))
		default:
			t.Fatalf("no case for %v", v.Type())
		}
	}
	set(reflect.ValueOf(&v).Elem(), 0)
	return &v
}

// eachList calls do with each list and map that a plain copy of the value shares with it, and with the way to it. Specs
// are not followed: all that have an equal one share it.
func eachList(v reflect.Value, path string, do func(path string, list reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				eachList(v.Field(i), path+"."+f.Name, do)
			}
		}
	case reflect.Slice:
		do(path, v)
		for i := range v.Len() {
			eachList(v.Index(i), fmt.Sprint(path, i), do)
		}
	case reflect.Map:
		do(path, v)
	}
}

// memoryOf returns the addresses of all lists and maps of a value.
func memoryOf(v any) map[uintptr]string {
	at := map[uintptr]string{}
	eachList(reflect.ValueOf(v).Elem(), "", func(path string, list reflect.Value) {
		if list.Len() > 0 {
			at[list.Pointer()] = path
		}
	})
	return at
}

// TestClonesShareNothing: whatever is written through a clone, the original stays as it is.
func TestClonesShareNothing(t *testing.T) {
	node, spec, gang := full[Node](t), full[Spec](t), full[Gang](t)
	shared, err := (&Spec{Module: "m", Extras: []Extra{{"licence", 2}}}).Share()
	require.NoError(t, err)
	cloned := node.Clone()
	for name, of := range map[string]struct{ is, clone any }{
		"node": {node, &cloned}, "spec": {spec, spec.Clone()}, "shared spec": {shared, shared.Clone()}, "gang": {gang, gang.Clone()},
	} {
		t.Run(name, func(t *testing.T) {
			was := memoryOf(of.is)
			require.NotEmpty(t, was)
			for at, path := range memoryOf(of.clone) {
				require.NotContains(t, was, at, "%s is shared", path)
			}
			require.Len(t, memoryOf(of.clone), len(was))
		})
	}
	require.Equal(t, *node, cloned)
	require.NotNil(t, (&Node{}).Clone().Labels, "ready to be written to")
	require.Equal(t, gang.Roles[0].Spec.clone(), gang.Clone().Roles[0].Spec)
	require.False(t, shared.Clone().Shared())
	again, err := shared.Clone().Share()
	require.NoError(t, err)
	require.Same(t, shared, again)
}

// described is a ledger with one record of each kind that has lists or maps, all of them filled.
func described(t *testing.T) court {
	spec := &Spec{
		Module: t.Name(), Devices: DeviceRequest{Count: 1, Milli: 500, Models: []string{"T4", "A100"}}, Envelope: Envelope{Reservation: Resources{CPU: 4}},
		Require: []Predicate{{Key: "zone", Op: "In", Values: []string{"z1", "z2"}},
			{Op: "AnyOf", Terms: [][]Predicate{{{Key: "zone", Op: "In", Values: []string{"z1"}}}, {{Key: "disk", Op: "Exists"}}}}},
		Prefer:   []Preference{{Predicate: Predicate{Key: "zone", Op: "In", Values: []string{"z1"}}, Weight: 1}},
		Tolerate: []Toleration{{Key: "t", Op: "Exists"}}, Spread: Domains{Level: "zone", Names: []string{"z1", "z2"}},
		Group: "g", Groups: []string{"h", "i"}, Apart: []Apart{{Group: "g", Level: "zone", Labelled: true}}, Even: []Even{{Group: "h", Level: "zone", Domains: []string{"z1", "z2"}, HonorTaints: true, IgnoreRequire: true}},
		Near: Near{Group: "h", Level: "zone"}, Nears: []Near{{Group: "h", Level: NodeKey}, {Group: "i", Level: "zone"}},
		PreferCompany: []Company{{Group: "x", Level: "zone", Weight: 1}}, Extras: []Extra{{"licence", 1}, {"port", 1}},
		Start: Start{Volumes: []string{"v1", "v2"}},
	}
	member := *spec
	member.Apart, member.Even = nil, nil
	node := Node{
		ID: "n", Labels: map[string]string{"zone": "z1", "disk": ""}, Capacity: Resources{CPU: 100}, Devices: Devices{Model: "T4", Count: 4},
		Taints: []Taint{{Key: "t", Effect: "NoSchedule"}}, Extras: []Extra{{"licence", 8}, {"port", 8}},
	}
	gang := &Gang{ID: "gang", Levels: []string{"zone"}, Roles: []Role{{Name: "r", Spec: &member, Members: []CapsuleID{"m1", "m2"}}}}
	c := widely(t, PutNode{node}, Submit{IDs: []CapsuleID{"a", "b"}, Spec: spec, Labels: map[string]string{"k": "v"}}, Submit{Gang: gang})
	room := []NominatedRoom{{Node: "n", Room: Resources{CPU: 3}}}
	c.commits(Place{Capsule: "a", Node: "n", Devices: 1})
	c.commits(Nominate{Capsule: "b", Parts: room, Ends: time.Unix(1e9, 0)}, Nominate{Gang: "gang", Parts: room, Ends: time.Unix(1e9, 0)})
	return c
}

// damage changes each element of a list or map in turn, calls then, and undoes the change.
func damage(list reflect.Value, then func(what string)) {
	if list.Kind() == reflect.Map {
		for _, key := range list.MapKeys() {
			was := list.MapIndex(key)
			list.SetMapIndex(key, reflect.ValueOf("z9"))
			then("a value")
			list.SetMapIndex(key, reflect.Value{})
			then("a missing key")
			list.SetMapIndex(key, was)
		}
		list.SetMapIndex(reflect.ValueOf("new"), reflect.ValueOf("v"))
		then("a new key")
		list.SetMapIndex(reflect.ValueOf("new"), reflect.Value{})
		return
	}
	for i := range list.Len() {
		damageValue(list.Index(i), fmt.Sprint(i), then)
	}
}

func damageValue(v reflect.Value, path string, then func(what string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	defer v.Set(was)
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint16, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice: // the list that the copy has in its place; its elements come in turn
		v.Set(reflect.Zero(v.Type()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && (v.Field(i).Kind() != reflect.Slice || v.Field(i).Len() > 0) {
				damageValue(v.Field(i), path+"."+f.Name, then)
			}
		}
		return
	case reflect.Array:
		for i := range v.Len() {
			damageValue(v.Index(i), fmt.Sprint(path, ".", i), then)
		}
		return
	}
	then(path)
}

// TestVerifyNoticesWrites: whatever list or map of a state is written to through a plain copy, Verify says so.
func TestVerifyNoticesWrites(t *testing.T) {
	s := described(t).now()
	node, spec, gang, claim := *s.Node("n").Node, *s.Capsule("a").Spec, *s.Gang("gang").Gang, *s.Capsule("b").Nomination()
	asks, theirs := *gang.Roles[0].Spec, *s.Gang("gang").Nomination
	for name, copied := range map[string]any{"node": node, "spec": spec, "gang": gang, "a role's spec": asks, "nomination": claim, "a gang's nomination": theirs} {
		t.Run(name, func(t *testing.T) {
			v, lists := reflect.New(reflect.TypeOf(copied)).Elem(), 0
			v.Set(reflect.ValueOf(copied))
			eachList(v, "", func(path string, list reflect.Value) {
				lists += min(1, list.Len())
				damage(list, func(what string) { require.Error(t, s.Verify(), "%s: %s", path, what) })
				require.NoError(t, s.Verify(), path)
			})
			require.Positive(t, lists)
		})
	}
	s.Capsule("a").Labels()["k"] = "z9"
	require.Equal(t, "v", s.Capsule("a").Label("k"), "Labels returns a copy")
	require.Empty(t, s.Capsule("a").Label("l"))
	require.Empty(t, s.Gang("gang").Nomination.Capsule)
}

// TestAppendsDoNotMeet: appends to the lists of two plain copies of a record do not write to the same memory.
func TestAppendsDoNotMeet(t *testing.T) {
	c := described(t)
	s := c.now()
	odd := func(list []string) []string { return append(make([]string, 0, 9), list...) }
	more := full[Node](t)
	more.Extras, more.Taints, more.Devices, more.State = append(more.Extras, Extra{"y", 1}), []Taint{{Key: "a", Effect: "NoSchedule"}}, Devices{}, Ready
	var b stateBuilder
	b.Revision, b.Limits = 9, s.Limits()
	require.NoError(t, b.Node(*more, 1, 1))
	require.NoError(t, b.Gang(&Gang{ID: "g", Levels: odd([]string{"l"}), Roles: append(make([]Role, 0, 3), Role{Name: "r", Spec: cpuSpec(1), Members: append(make([]CapsuleID, 0, 3), "m")})}, 1, nil))
	require.NoError(t, b.Capsule(storedCapsule{Capsule: Capsule{ID: "m", Submitted: 1, Spec: cpuSpec(1), Changed: 1}, Gang: "g"}))
	built, err := b.State()
	require.NoError(t, err)
	changes, err := c.Changes(t.Context(), 0)
	require.NoError(t, err)
	for name, of := range map[string]any{
		"node": s.Node("n").Node, "spec": s.Capsule("a").Spec, "gang": s.Gang("gang").Gang, "nomination": s.Capsule("b").Nomination(),
		"built node": built.Node(more.ID).Node, "built gang": built.Gang("g").Gang,
		"node in the history": &[]Node{changes[0].Do.(PutNode).Node}[0], "gang in the history": changes[2].Do.(Submit).Gang,
		"odd spec": func() *Spec {
			shared, err := (&Spec{Devices: DeviceRequest{Models: []string{"a", "a", "b"}, Count: 1, Milli: 1}, Groups: []string{"x", "y", "y"}, Apart: []Apart{{Group: "x", Level: "l"}, {Group: "x", Level: "l"}, {Group: "y", Level: "l"}},
				Require: []Predicate{{Key: "k", Op: "In", Values: []string{"v", "v", "w"}}}}).Share()
			require.NoError(t, err)
			return shared
		}(),
	} {
		eachList(reflect.ValueOf(of).Elem(), name, func(path string, list reflect.Value) {
			if list.Kind() == reflect.Slice {
				require.Equal(t, list.Len(), list.Cap(), path)
			}
		})
	}
}

// TestBuilderKeepsNothing: what is given to a builder may be changed afterwards.
func TestBuilderKeepsNothing(t *testing.T) {
	labels, levels, members := map[string]string{"zone": "z1"}, []string{"zone"}, []CapsuleID{"m"}
	node := Node{ID: "n", Labels: labels, Taints: []Taint{{Key: "a", Effect: "NoSchedule"}}}
	b := stateBuilder{Revision: 9, Limits: (&MemoryLedger{}).Limits()}
	require.NoError(t, b.Node(node, 1, 1))
	require.NoError(t, b.Gang(&Gang{ID: "g", Levels: levels, Roles: []Role{{Name: "r", Spec: cpuSpec(1), Members: members}}}, 1, nil))
	require.NoError(t, b.Capsule(storedCapsule{Capsule: Capsule{ID: "m", Submitted: 1, Spec: cpuSpec(1), Changed: 1}, Gang: "g"}))
	labels["zone"], levels[0], members[0], node.Taints[0].Key = "z9", "rack", "x", "b"
	s, err := b.State()
	require.NoError(t, err)
	require.Equal(t, Node{ID: "n", Labels: map[string]string{"zone": "z1"}, Taints: []Taint{{Key: "a", Effect: "NoSchedule"}}}, *s.Node("n").Node)
	require.Equal(t, []string{"zone"}, s.Gang("g").Gang.Levels)
	require.Equal(t, []CapsuleID{"m"}, s.Gang("g").Gang.Roles[0].Members)
}

// TestPlainCopiesAreRefused: a copy through which the ledger's own record was changed is refused, with what to do, and so
// is any other change of that record.
func TestPlainCopiesAreRefused(t *testing.T) {
	const says = "a plain copy of"
	t.Run("node", func(t *testing.T) {
		for name, write := range map[string]func(*Node){
			"label":     func(n *Node) { n.Labels["zone"] = "z9" },
			"new label": func(n *Node) { n.Labels["new"] = "v" },
			"no label":  func(n *Node) { delete(n.Labels, "disk") },
			"taint":     func(n *Node) { n.Taints[0].Value = "v" },
			"extra":     func(n *Node) { n.Extras[0].Amount = 0 },
		} {
			t.Run(name, func(t *testing.T) {
				c := described(t)
				n := *c.now().Node("n").Node
				write(&n)
				for _, do := range []Commitment{PutNode{n}, PutNode{n.Clone()}, cpuNode("n", 1)} {
					r := c.refuses(ErrInvalid, Proposal{View: c.now().Revision(), Do: []Commitment{do}})
					require.ErrorContains(t, r, says)
					require.ErrorContains(t, r, "Node.Clone")
					require.Equal(t, NodeID("n"), r.Node)
				}
				require.Error(t, c.now().Verify())
				_, err := c.now().Apply([]Change{{Revision: c.now().Revision() + 1, Do: cpuNode("n", 1)}})
				require.ErrorContains(t, err, says, "a follower stops rather than to count on")
			})
		}
	})
	t.Run("node that leaves", func(t *testing.T) {
		c := newCourt(t, PutNode{Node{ID: "n", Labels: map[string]string{"zone": "z1"}}})
		c.now().Node("n").Node.Labels["zone"] = "z9"
		require.ErrorContains(t, c.refuses(ErrInvalid, Proposal{Do: []Commitment{RemoveNode{Node: "n"}}}), says)
		require.ErrorContains(t, c.refuses(ErrInvalid, Proposal{Do: []Commitment{RemoveNode{Node: "n"}, cpuNode("n", 1)}}), says)
	})
	t.Run("spec", func(t *testing.T) {
		c := described(t)
		spec := *c.now().Capsule("a").Spec
		spec.Extras[0].Amount = 0
		defer func() { spec.Extras[0].Amount = 1 }()
		larger := spec
		larger.Envelope.Reservation[CPU]++
		for _, do := range []Commitment{submitOf(&spec, "x"), Respec{Capsule: "a", Spec: &larger}, Adopt{Capsule: "x", Node: "n", Spec: &spec},
			Submit{Gang: &Gang{ID: "x", Roles: []Role{{Spec: &spec, Members: []CapsuleID{"x"}}}}}} {
			r := c.refuses(ErrInvalid, Proposal{Do: []Commitment{do}})
			require.ErrorContains(t, r, says)
			require.ErrorContains(t, r, "Spec.Clone")
		}
		_, err := spec.Share()
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, says)
	})
	t.Run("nomination", func(t *testing.T) {
		c := described(t)
		parts := c.now().Capsule("b").Nomination().Parts
		parts[0].Room[CPU] = 1
		for _, do := range []Nominate{{Capsule: "b", Parts: parts, Ends: time.Unix(1e9, 0)}, {Capsule: "b"}} {
			require.ErrorContains(t, c.refuses(ErrInvalid, Proposal{View: c.now().Revision(), Do: []Commitment{do}}), says)
			v, refresh := viewOf(t, c.MemoryLedger, nil)
			refresh()
			var d Draft
			d.Sync(v)
			require.ErrorContains(t, d.Nominate(do), says)
		}
	})
}

// TestPlainCopiesServe: a plain copy of which only plain fields are changed is as good as a clone, also several times and
// beside changes of others.
func TestPlainCopiesServe(t *testing.T) {
	c := described(t)
	n, before := *c.now().Node("n").Node, c.now()
	n.State = Cordoned
	c.commits(PutNode{n})
	n.Capacity[CPU]++
	c.commits(PutNode{n}, PutNode{n})
	n.Labels = map[string]string{"zone": "z1", "disk": "ssd"}
	c.commits(PutNode{n})
	m := *c.now().Node("n").Node
	m.State = Ready
	c.commits(PutNode{m})
	require.Empty(t, before.Node("n").Node.Labels["disk"])
	spec := *c.now().Capsule("a").Spec
	spec.Priority = math.MaxInt32
	c.commits(submitOf(&spec, "x"))
	c.commits(Nominate{Capsule: "b", Parts: c.now().Capsule("b").Nomination().Parts, Ends: time.Unix(1e9, 0)})
	c.commits(Nominate{Capsule: "b", Parts: c.now().Capsule("b").Nomination().Parts, Ends: time.Unix(1e9, 0)}, Nominate{Capsule: "b"})
	c.commits(Nominate{Gang: "gang", Parts: c.now().Gang("gang").Nomination.Parts, Ends: time.Unix(1e9, 0)})
}
