package heap

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type number int

func (n number) Before(o number) bool { return n < o }

// The first of a heap is the least of what is in it, whatever was pushed, popped and replaced before.
func TestHeapProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[number]
		var sorted []number
		for range rapid.IntRange(0, 100).Draw(t, "steps") {
			x := number(rapid.IntRange(0, 20).Draw(t, "x"))
			switch do := rapid.IntRange(0, 3).Draw(t, "do"); {
			case do == 0 && len(sorted) > 0:
				require.Equal(t, sorted[0], h.Pop())
				sorted = sorted[1:]
			case do == 1 && len(sorted) > 0:
				h.Replace(x)
				sorted[0] = x
			default:
				h.Push(x)
				sorted = append(sorted, x)
			}
			slices.Sort(sorted)
			require.Len(t, h, len(sorted))
			if len(sorted) > 0 {
				require.Equal(t, sorted[0], h[0])
			}
		}
	})
}
