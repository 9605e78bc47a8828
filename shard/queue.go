package shard

// queue is a list of values in order of arrival, each once. The zero value is empty.
type queue[T comparable] struct {
	list []T
	has  map[T]bool
}

// add appends the values that the queue does not have.
func (q *queue[T]) add(values ...T) {
	for _, v := range values {
		if q.has == nil {
			q.has = map[T]bool{}
		}
		if !q.has[v] {
			q.has[v] = true
			q.list = append(q.list, v)
		}
	}
}

// take removes and returns the first value. The queue must not be empty.
func (q *queue[T]) take() T {
	v := q.list[0]
	clear(q.list[:1])
	q.list = q.list[1:]
	delete(q.has, v)
	return v
}
