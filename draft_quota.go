package orbit

// Queue returns the state of the queue with this id as the plan leaves it so far, and whether there is one. The state is
// that of this moment: later placements of the plan do not change it.
func (d *Draft) Queue(id QueueID) (QueueState, bool) {
	if d.view == nil {
		return QueueState{}, false
	}
	return d.view.State().Queue(id)
}
