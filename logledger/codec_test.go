package logledger

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

var (
	texts = rapid.OneOf(rapid.StringMatching(`[a-z0-9-]{0,12}`), rapid.String())
	revs  = rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64())
	ids   = rapid.Custom(func(t *rapid.T) (id orbit.ProposalID) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		return id
	})
	specs = []*orbit.Spec{{}, {Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{100, 1 << 30}}}, {Module: "db", Groups: []string{"a", "b"}, Priority: -7}}
)

// commitments draws commitments of all kinds that have a form of their own, and of some that are JSON.
var commitments = rapid.Custom(func(t *rapid.T) orbit.Commitment {
	text := func(of string) string { return texts.Draw(t, of) }
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0, 1:
		return orbit.Place{Capsule: orbit.CapsuleID(text("capsule")), Node: orbit.NodeID(text("node")), Devices: orbit.DeviceSet(rapid.Uint16().Draw(t, "devices")),
			After: rapid.Bool().Draw(t, "after"), Note: text("note"), At: orbit.Instant(rapid.Int64().Draw(t, "at"))}
	case 2:
		return orbit.Release{Capsule: orbit.CapsuleID(text("capsule")), From: orbit.NodeID(text("from")), Final: rapid.Bool().Draw(t, "final"), Stopped: rapid.Bool().Draw(t, "stopped"),
			At: orbit.Instant(rapid.Int64().Draw(t, "at"))}
	case 3:
		s := orbit.Submit{Spec: rapid.SampledFrom(specs).Draw(t, "spec"), Owner: text("owner"), At: orbit.Instant(rapid.Int64().Draw(t, "at"))}
		s.IDs = []orbit.CapsuleID{}
		for i := range rapid.IntRange(0, 4).Draw(t, "ids") {
			s.IDs = append(s.IDs, orbit.CapsuleID(fmt.Sprint(text("id"), i)))
		}
		if len(s.IDs) > 0 && rapid.IntRange(0, 3).Draw(t, "labels of each") == 0 {
			s.LabelsOf = map[orbit.CapsuleID]map[string]string{s.IDs[0]: {"uid": text("uid")}}
		}
		if len(s.IDs) > 0 && rapid.IntRange(0, 3).Draw(t, "joins") == 0 {
			s.Gang, s.Join = &orbit.Gang{ID: orbit.GangID(text("gang")), Min: 2, Roles: []orbit.Role{{Name: text("role"), Spec: s.Spec, Members: s.IDs}}}, true
			s.IDs, s.Spec = nil, nil
		}
		return s
	case 4:
		return orbit.Confirm{Capsule: orbit.CapsuleID(text("capsule")), Since: orbit.Revision(revs.Draw(t, "since")), Begun: rapid.Bool().Draw(t, "begun"),
			Ready: rapid.Bool().Draw(t, "ready"), NotReady: rapid.Bool().Draw(t, "not ready"), Stopped: rapid.Bool().Draw(t, "stopped")}
	case 5:
		return orbit.Mark{Key: "k" + rapid.StringMatching(`[a-z"<é]{0,9}`).Draw(t, "key"), Value: "v"}
	default:
		return orbit.Release{Hold: "h"}
	}
})

var changes = rapid.Custom(func(t *rapid.T) orbit.Change {
	c := orbit.Change{Revision: orbit.Revision(revs.Draw(t, "revision")), Seq: rapid.IntRange(0, 3).Draw(t, "seq"), ID: ids.Draw(t, "id"), Do: commitments.Draw(t, "do")}
	if p, ok := c.Do.(orbit.Place); ok && rapid.Bool().Draw(t, "own node") {
		c.Node = p.Node
	} else {
		c.Node = orbit.NodeID(texts.Draw(t, "node"))
	}
	return c
})

// histories draws changes as a ledger makes them, with some that no ledger makes.
var histories = rapid.Custom(func(t *rapid.T) []orbit.Change {
	list := rapid.SliceOfN(changes, 0, 12).Draw(t, "changes")
	for i := range list {
		switch rapid.IntRange(0, 4).Draw(t, "follows") {
		case 0:
		case 1, 2:
			list[i].Seq, list[i].Revision = 0, 8
			if i > 0 {
				list[i].Revision, list[i].ID = list[i-1].Revision+1, successor(list[i-1].ID)
			}
		case 3:
			if i > 0 {
				list[i].Revision, list[i].Seq, list[i].ID = list[i-1].Revision, list[i-1].Seq+1, list[i-1].ID
			}
		case 4:
			list[i].ID = orbit.ProposalID{}
		}
	}
	return list
})

// TestEntriesAreReadAsWritten: whatever is encoded is decoded to the same.
func TestEntriesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Entry{Writer: WriterID{1, 2}, Number: revs.Draw(t, "number"), Changes: histories.Draw(t, "history")}
		if rapid.Bool().Draw(t, "hands on") {
			want.Next = WriterID{9, 9}
		}
		for range rapid.IntRange(0, 3).Draw(t, "settled") {
			want.Settled = append(want.Settled, Settlement{Post: PostID{WriterID{3}, revs.Draw(t, "post")}, Revisions: []orbit.Revision{0, orbit.Revision(revs.Draw(t, "rev"))}})
		}
		data, err := encodeEntry(&want, orbit.Revision(revs.Draw(t, "base")))
		require.NoError(t, err)
		got, err := DecodeEntry(data)
		require.NoError(t, err)
		if len(want.Changes) == 0 {
			want.Changes, got.Changes = nil, nil
		}
		require.True(t, reflect.DeepEqual(want, got), "wrote %+v\nread  %+v", want, got)

		cut := rapid.IntRange(0, len(data)-1).Draw(t, "cut")
		if _, err := DecodeEntry(data[:cut]); cut < len(data) {
			require.Error(t, err, "a part of an entry was read as an entry")
		}
	})
}

// TestPostsAreReadAsWritten is the same for proposals.
func TestPostsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []orbit.Proposal
		var list []*orbit.Proposal
		for range rapid.IntRange(1, 4).Draw(t, "proposals") {
			p := orbit.Proposal{ID: ids.Draw(t, "id"), View: orbit.Revision(revs.Draw(t, "view")), Do: []orbit.Commitment{}, If: []orbit.Precondition{}}
			p.Do = append(p.Do, rapid.SliceOfN(commitments, 0, 4).Draw(t, "do")...)
			if rapid.Bool().Draw(t, "bets") {
				p.If = append(p.If, orbit.NodeFreeOf{Node: "n", AtLeast: orbit.Resources{0, rapid.Int64().Draw(t, "free"), 7: 1}},
					orbit.GangUnplaced{Gang: "g"}, orbit.NodeAt{Node: "n", Usage: 7}, orbit.GroupIn{Group: "g", Level: "l", Domain: "d"}, orbit.MarkAt{Key: "k", Revision: 3})
			}
			want = append(want, p)
		}
		for i := range want {
			list = append(list, &want[i])
		}
		data, err := encodePost(list, mostChanges)
		require.NoError(t, err)
		got, err := decodePost(data)
		require.NoError(t, err)
		require.True(t, reflect.DeepEqual(want, got), "wrote %+v\nread  %+v", want, got)
	})
}

// TestSizeOfPlacements: placements take few bytes, alone and in groups.
func TestSizeOfPlacements(t *testing.T) {
	size := func(n int) float64 {
		e := Entry{Writer: newWriterID()}
		id := orbit.NewProposalID()
		for i := range n {
			id = successor(id)
			node := orbit.NodeID(fmt.Sprintf("node-%06d", i*7919%10_000))
			e.Changes = append(e.Changes, orbit.Change{Revision: orbit.Revision(1_000_000 + i), ID: id, Node: node,
				Do: orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprintf("capsule-%08d", i)), Node: node, At: orbit.Instant(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())}})
		}
		data, err := encodeEntry(&e, 999_999)
		require.NoError(t, err)
		return float64(len(data)) / float64(n)
	}
	require.Less(t, size(1), 90.0)
	require.Less(t, size(1000), 14.0)
	t.Logf("bytes a placement: alone %.0f, in groups of 1,000 %.1f", size(1), size(1000))
}

// FuzzDecode: bytes that nobody has written are an error, and no reason to panic or to take much memory.
func FuzzDecode(f *testing.F) {
	e := Entry{Writer: WriterID{1}, Changes: []orbit.Change{{Revision: 1, Do: orbit.Place{Capsule: "c", Node: "n"}, Node: "n"}}}
	data, err := encodeEntry(&e, 0)
	require.NoError(f, err)
	f.Add(data)
	post, err := encodePost([]*orbit.Proposal{{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: specs[1]}}}}, mostChanges)
	require.NoError(f, err)
	f.Add(post)
	f.Add([]byte(`{"revision":7,"do":{"place":{"capsule":"web-1","node":"node-a"}},"node":"node-a"}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, err := DecodeEntry(data); err == nil && data[0] == entryVersion && len(e.Changes) > 0 {
			again, err := encodeEntry(&e, e.Changes[0].Revision-1)
			require.NoError(t, err)
			same, err := DecodeEntry(again)
			require.NoError(t, err)
			require.Equal(t, e, same)
		}
		_, _ = decodePost(data)
	})
}
