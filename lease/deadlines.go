package lease

import "container/heap"

// deadlines is a heap of deadlines, the earliest first.
type deadlines []deadline

func (h *deadlines) push(d deadline) { heap.Push((*deadlineHeap)(h), d) }

// pop requires a heap that is not empty.
func (h *deadlines) pop() deadline { return heap.Pop((*deadlineHeap)(h)).(deadline) }

type deadlineHeap []deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)        { *h = append(*h, x.(deadline)) }
func (h *deadlineHeap) Pop() any {
	s := *h
	last := len(s) - 1
	d := s[last]
	s[last] = deadline{}
	*h = s[:last]
	return d
}
