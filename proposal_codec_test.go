package orbit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// everyCommitment is one of each kind, with every field set that is written.
var everyCommitment = map[string]Commitment{
	"putNode": PutNode{Node{ID: "n", Capacity: Resources{CPU: 1}, Labels: map[string]string{"a": "b"},
		Devices: Devices{Model: "A", Count: 2, Unhealthy: 1}, Unschedulable: true}},
	"removeNode": RemoveNode{"n"},
	"submit":     Submit{IDs: []CapsuleID{"x", "y"}, Spec: &Spec{Module: "m", Group: "g", Near: Near{"g", "rack"}}, Owner: "o"},
	"gang":       Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: &Spec{}, Members: []CapsuleID{"x"}, Min: 1}}, Levels: []string{"rack"}}},
	"place":      Place{Capsule: "x", Node: "n", Devices: 3, Note: "warm"},
	"release":    Release{Capsule: "x", From: "n", Final: true},
	"endHold":    Release{Hold: "h"},
	"hold":       Hold{ID: "h", Node: "n", Room: Resources{CPU: 1}, Devices: 1, Milli: 5, For: "f", Ends: time.Unix(9, 7).UTC()},
	"assign":     Assign{Capsule: "x", From: "a", Owner: "b"},
	"mark":       Mark{Key: "k", Value: "v"},
}

// What is written reads back equal, whatever the kind.
func TestCommitmentsReadBack(t *testing.T) {
	for name, c := range everyCommitment {
		text, err := MarshalCommitment(c)
		require.NoError(t, err)
		back, err := UnmarshalCommitment(text)
		require.NoError(t, err, "%s: %s", name, text)
		require.Equal(t, c, back)
	}
	text, err := MarshalCommitment(everyCommitment["place"])
	require.NoError(t, err)
	require.JSONEq(t, `{"place":{"capsule":"x","node":"n","devices":3,"note":"warm"}}`, string(text))
}

// What is no commitment is refused, in both directions.
func TestCommitmentsThatAreNone(t *testing.T) {
	for _, c := range []Commitment{nil, &Place{}, (*Mark)(nil)} {
		_, err := MarshalCommitment(c)
		require.ErrorIs(t, err, ErrInvalid)
	}
	for _, text := range []string{"", "null", "{}", "[]", "7", `{"place":null}`, `{"place":{},"mark":{}}`, `{"place":{"capsule":"x"}} {}`,
		`{"place":{"capsule":"x","nowhere":1}}`, `{"launch":{}}`, `{"place":{"capsule":7}}`, `{"place":{"capsule":"x"}`} {
		_, err := UnmarshalCommitment([]byte(text))
		require.ErrorIs(t, err, ErrInvalid, "%q", text)
	}
}

// Whatever is read, is written and read back as the same; nothing panics.
func FuzzCommitment(f *testing.F) {
	for _, c := range everyCommitment {
		text, err := MarshalCommitment(c)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := UnmarshalCommitment(text)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		first, err := MarshalCommitment(c)
		require.NoError(t, err)
		again, err := UnmarshalCommitment(first)
		require.NoError(t, err)
		second, err := MarshalCommitment(again)
		require.NoError(t, err)
		require.Equal(t, string(first), string(second))
		clone := Proposal{Do: []Commitment{c}}.Clone()
		_ = clone.check(&Limits{})
	})
}
