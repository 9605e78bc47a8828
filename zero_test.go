package orbit

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ended is a context that has ended, so that nothing waits.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// pointers says which pointers callAll passes.
type pointers int

const (
	nils    pointers = iota // nil
	zeros                   // to zero values
	records                 // to zero values, and to records that describe something
)

// argument returns an argument of a type for callAll: as it is given, if it is given; a context, a ledger and the like
// that do nothing; a function that goes on; else a zero value.
func argument(of reflect.Type, p pointers) reflect.Value {
	given := []any{ended, new(bytes.Buffer), &MemoryLedger{}}
	if p == records {
		given = append(given, &NodeState{Node: &Node{}}, &Capsule{Spec: &Spec{}}, &GangState{Gang: &Gang{}})
	}
	for _, v := range given {
		if reflect.TypeOf(v) == of || of.Kind() == reflect.Interface && of.NumMethod() > 0 && reflect.TypeOf(v).Implements(of) {
			return reflect.ValueOf(v)
		}
	}
	switch {
	case of.Kind() == reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) (out []reflect.Value) {
			for i := range of.NumOut() {
				out = append(out, reflect.New(of.Out(i)).Elem())
				out[i].Set(reflect.Zero(of.Out(i)))
				if out[i].Kind() == reflect.Bool {
					out[i].SetBool(true)
				}
			}
			return out
		})
	case of.Kind() == reflect.Pointer && p != nils:
		return reflect.New(of.Elem())
	}
	return reflect.Zero(of)
}

// call calls a function, and the functions that it returns, iterators for example. It returns the texts of what they
// return, and an error if one panics.
func call(f reflect.Value, p pointers) (said []string, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	args := make([]reflect.Value, f.Type().NumIn())
	for i := range args {
		args[i] = argument(f.Type().In(i), p)
	}
	do := f.Call
	if f.Type().IsVariadic() {
		do = f.CallSlice
	}
	for _, out := range do(args) {
		switch {
		case out.Kind() != reflect.Func:
			said = append(said, fmt.Sprintf("%+v", out.Interface()))
		case !out.IsNil():
			more, err := call(out, p)
			if said = append(said, more...); err != nil {
				return said, err
			}
		}
	}
	return said, nil
}

// callAll calls every exported method of a value, and returns what each said.
func callAll(t *testing.T, of any, p pointers) map[string][]string {
	v, said := reflect.ValueOf(of), map[string][]string{}
	for i := range v.NumMethod() {
		var err error
		name := v.Type().Method(i).Name
		said[name], err = call(v.Method(i), p)
		assert.NoError(t, err, name)
	}
	return said
}

// The zero State answers every question as an empty one does, whether there are arguments or none.
func TestZeroStateIsEmpty(t *testing.T) {
	for _, p := range []pointers{nils, zeros, records} {
		zero, empty := callAll(t, new(State), p), callAll(t, newState(Limits{}, [Dimensions]string{}), p)
		require.NotEmpty(t, zero)
		for name := range empty {
			switch name {
			case "Apply", "CatchUp", "With", "Diff", "Restricted": // what they return has states in it, whose texts are addresses
			case "Restore": // restores into a zero State only
			default:
				assert.Equal(t, empty[name], zero[name], name)
			}
		}
	}
}

// A ledger can start from the zero State, and states follow it.
func TestZeroStateGoesOn(t *testing.T) {
	next, err := new(State).With(Proposal{Do: []Commitment{PutNode{machine("n", 1)}}})
	require.NoError(t, err)
	assert.Equal(t, 1, next.NodeCount())
	l := &MemoryLedger{Start: new(State)}
	commit(t, l, PutNode{machine("n", 1)})
	changes, err := l.Changes(t.Context(), 0)
	require.NoError(t, err)
	next, err = new(State).Apply(changes)
	require.NoError(t, err)
	assert.Equal(t, 1, next.NodeCount())
	assert.NoError(t, next.Verify())
}

// A state differs from none, and from the zero State, by all that it has.
func TestDiffFromNoState(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 1)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	for _, from := range []*State{nil, {}} {
		nodes, capsules := 0, 0
		for was, now := range snapshotOf(t, l).Diff(from).Nodes() {
			nodes += btoi(was == nil && now.Node.ID == "n")
		}
		for was, now := range snapshotOf(t, l).Diff(from).Capsules() {
			capsules += btoi(was == nil && now.ID == "c")
		}
		assert.Equal(t, [2]int{1, 1}, [2]int{nodes, capsules})
	}
}

// No method of a zero value panics, nor of a record of a state without what it describes, nor if a pointer to such a
// value is passed.
func TestZeroValuesDoNotPanic(t *testing.T) {
	one := &Gang{Roles: []Role{{Members: []CapsuleID{"c"}, Spec: &Spec{}}}}
	for _, v := range []any{
		new(View), new(Draft), new(Round), new(Plan), new(Unplaced), new(NoFit), new(Misfit), new(Rejection), new(Settled), new(Outcome),
		new(Node), &NodeState{Node: &Node{}}, &Capsule{Spec: &Spec{}}, new(Capsule), new(Gang), new(NodeState), new(GangState), &GangState{Gang: one}, &GangState{Gang: one, Placed: []int{0}, Done: []int{0}},
		new(Role), new(Spec), new(Hold), new(Nomination), new(Budget), new(Proposal), new(Change), new(Resources), new(Limits), new(DeviceSet),
		new(Instant), new(Predicate), new(Taint), new(Toleration), new(Backlog), new(ProposalID), new(Report), new(Diff),
		new(Engine), new(Population), new(MemoryLedger), new(Backoff), new(Aging), new(AppClass), new(Condition), new(Skew), new(Company),
		new(Preference), new(Near), new(BacklogRow), new(BudgetState), new(NodeStarts), new(Nominee), new(Envelope), new(Devices), new(DeviceRequest),
		&Remains{Spec: &Spec{}}, new(Failures), new(NominatedRoom), new(NodeFailure), new(Even), new(Apart), new(Extra), new(Start), new(Domains),
	} {
		t.Run(reflect.TypeOf(v).Elem().Name(), func(t *testing.T) {
			callAll(t, v, records)
			callAll(t, v, zeros)
		})
	}
}

// A record of a state that describes nothing answers every question with zero.
func TestZeroRecordsAnswerZero(t *testing.T) {
	wants := &Spec{Envelope: Envelope{Reservation: Resources{CPU: 1}}, Devices: DeviceRequest{Count: 1, Milli: 1}}
	var n NodeState
	assert.False(t, n.Fits(&Spec{}))
	assert.Zero(t, n.Free())
	assert.Zero(t, n.DevicesFor(wants))
	_, ok := n.PickDevices(wants)
	assert.False(t, ok)
	assert.NotZero(t, new(Draft).Misfit(&n, &Spec{}), "nothing fits on a node that is none")
	var g GangState
	lowest, highest := g.Priorities()
	for _, n := range []int{g.Total(), g.Left(3), g.Minimum(0), g.Lacks(-1), g.LacksInAll(), int(lowest), int(highest)} {
		assert.Zero(t, n)
	}
	assert.False(t, g.Broken() || g.Short())
}
