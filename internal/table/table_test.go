package table

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/cow"
)

type record struct{ id, value uint32 }

// A table gives no slot to two records, finds what is filed, and leaves older copies as they were.
func TestTableProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table[record, [2]record]
		owner := cow.NewOwner()
		slots := map[uint32]uint32{} // by id
		type version struct {
			table Table[record, [2]record]
			slots map[uint32]uint32
		}
		var versions []version
		check := func(v version) {
			require.Equal(t, len(v.slots), v.table.Len())
			for id, slot := range v.slots {
				probe := v.table.Probe(id % 3)
				for found, ok := probe.Next(); found != slot; found, ok = probe.Next() {
					require.True(t, ok, "record %d is not found", id)
				}
				require.Equal(t, id, v.table.At(slot).id)
			}
		}
		for id := uint32(1); id <= 40; id++ {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				s := table.Slots()
				slot := s.Next()
				for _, taken := range slots {
					require.NotEqual(t, taken, slot)
				}
				if rapid.Bool().Draw(t, "undecided") {
					continue // the copy of the source is dropped
				}
				table.Grow(s, owner)
				table.Own(slot, owner).id = id
				table.File(id%3, slot, owner)
				slots[id] = slot
			case 2:
				for id, slot := range slots {
					*table.Own(slot, owner) = record{}
					table.Unfile(id%3, slot, owner)
					table.Drop(slot)
					delete(slots, id)
					break
				}
			default:
				known := map[uint32]uint32{}
				for id, slot := range slots {
					known[id] = slot
				}
				versions = append(versions, version{table, known})
				owner = cow.NewOwner()
			}
			check(version{table, slots})
		}
		for _, v := range versions {
			check(v)
		}
	})
}

// Adopt takes the records of another copy, and neither its slots nor what it finds.
func TestAdopt(t *testing.T) {
	var one, other Table[record, [4]record]
	owner := cow.NewOwner()
	put := func(table *Table[record, [4]record], value uint32) {
		s := table.Slots()
		slot := s.Next()
		table.Grow(s, owner)
		table.Own(slot, owner).value = value
	}
	put(&other, 7)
	for i := range uint32(9) {
		put(&one, i+1)
	}
	one.Adopt(&other, cow.NewOwner())
	require.EqualValues(t, 9, one.Bound())
	require.EqualValues(t, 7, one.At(0).value)
	require.Zero(t, *one.At(8))
}
