package agent

// step is the agent's next action for an instance.
type step uint8

const (
	// rest: there is nothing to do.
	rest step = iota
	// begin: confirm Begun, and start the instance once that is committed.
	begin
	// say: confirm a fact.
	say
	// stop: stop the instance.
	stop
	// forget: remove the instance, which has ended, from the runtime's list.
	forget
)

// decide returns the next step for an instance, and the fact to confirm. Task is its placement, nil if it is not placed
// on this node. Leaving says that it was taken off the node and is not confirmed as stopped. Phase is its phase in the
// runtime's list, 0 if it is not listed.
//
//	            placed                            leaving            neither
//	runs        confirm what the ledger lacks     stop               stop
//	ended       confirm Stopped or Finished       the same           forget
//	not listed  begin; if it has begun: Stopped   confirm Stopped    nothing
func decide(task *Task, leaving bool, phase Phase) (step, Fact) {
	switch {
	case phase.runs() && task == nil:
		return stop, ""
	case phase.runs():
		return unsaid(task, phase)
	case task == nil && !leaving && phase == 0:
		return rest, ""
	case task == nil && !leaving:
		return forget, ""
	case phase == Done:
		return say, Finished
	case phase == 0 && task != nil && !task.Begun:
		return begin, Begun
	}
	return say, Stopped
}

// unsaid returns the fact that the ledger lacks about an instance that runs where it is placed.
func unsaid(task *Task, phase Phase) (step, Fact) {
	switch {
	case phase == Ready && !task.Ready:
		return say, Serves
	case phase == Running && task.Ready:
		return say, NotReady
	case !task.Begun: // the newest Work predates the commit of Begun, or the ledger was restored from an older dump
		return say, Begun
	}
	return rest, ""
}
