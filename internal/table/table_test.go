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
				require.Less(t, slot, v.table.Bound())
			}
			found := map[uint32]uint32{}
			for slot, r := range v.table.All {
				found[r.id] = slot
			}
			require.Equal(t, v.slots, found)
			for slot, r := uint32(0), v.table.Vacant(0); slot < r; slot++ {
				require.NotZero(t, v.table.At(slot).id, "slot %d is vacant", slot)
			}
		}
		for id := uint32(1); id <= 40; id++ {
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				slot := table.Vacant(rapid.SampledFrom([]uint32{0, 0, 0, 7, 255, 256}).Draw(t, "from"))
				for _, taken := range slots {
					require.NotEqual(t, taken, slot)
				}
				if rapid.Bool().Draw(t, "undecided") {
					continue
				}
				record := table.Take(slot, owner)
				require.Zero(t, *record)
				record.id = id
				table.File(id%3, slot, owner)
				slots[id] = slot
			case 2:
				for id, slot := range slots {
					table.Unfile(id%3, slot, owner)
					table.Drop(slot, owner)
					require.Zero(t, *table.At(slot))
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
		for i, v := range versions {
			check(v)
			seen := map[uint32]record{}
			table.Diff(&versions[i].table, func(slot uint32, was, now *record) bool {
				require.Equal(t, *v.table.At(slot), *was)
				require.Equal(t, *table.At(slot), *now)
				seen[slot] = *now
				return true
			})
			for slot := range max(table.Bound(), v.table.Bound()) {
				if _, named := seen[slot]; !named {
					require.Equal(t, *v.table.At(slot), *table.At(slot), "slot %d is not named", slot)
				}
			}
		}
	})
}

// Adopt takes the records of another copy with their slots, and not what it finds.
func TestAdopt(t *testing.T) {
	var one, other Table[record, [4]record]
	owner := cow.NewOwner()
	for i := range uint32(9) {
		one.Take(i, owner).value = i + 1
		one.File(i, i, owner)
	}
	other.Take(0, owner).value = 7
	one.Adopt(&other)
	require.EqualValues(t, 9, one.Bound())
	require.Equal(t, 9, one.Len())
	require.EqualValues(t, 7, one.At(0).value)
	require.Zero(t, *one.At(8))
	require.EqualValues(t, 1, one.Vacant(0))
}

// A table gives back the memory of what was dropped, and takes the lowest slots again.
func TestTableShrinks(t *testing.T) {
	var table Table[record, [2]record]
	owner := cow.NewOwner()
	const many = 10_000
	for i := range uint32(many) {
		require.Equal(t, i, table.Vacant(0))
		table.Take(i, owner).id = i
		table.File(i*2654435761, i, owner)
	}
	for i := range uint32(many) {
		if i != 7000 {
			table.Unfile(i*2654435761, i, owner)
			table.Drop(i, owner)
		}
	}
	chunks := 0
	for range table.chunks.All {
		chunks++
	}
	require.Equal(t, 1, chunks)
	require.EqualValues(t, 0, table.Vacant(0))
	require.EqualValues(t, 7001, table.Vacant(7000))
	require.EqualValues(t, many, table.Bound())
}
