package agent

// step is what an agent does next for an instance.
type step uint8

const (
	// Nothing is to be done.
	rest step = iota
	// Say Begun, and start the instance once that is committed.
	begin
	// Say a fact.
	say
	// Stop the instance.
	stop
	// Remove the instance, which has ended, from the runtime's list.
	forget
)

// decide returns the next step for an instance: task is its placement, nil if it is not placed here; leaving says that it
// was taken off and not confirmed as stopped; phase is what the runtime says, 0 if the runtime does not list it.
//
//	            placed                            leaving            neither
//	runs        say what is not said of it yet    stop               stop
//	ended       say Stopped or Finished           the same           forget
//	not listed  begin; if it has begun: Stopped   say Stopped        nothing
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

// unsaid returns what the ledger does not know of an instance that runs where it is placed.
func unsaid(task *Task, phase Phase) (step, Fact) {
	switch {
	case phase == Ready && !task.Ready:
		return say, Serves
	case phase == Running && task.Ready:
		return say, NotReady
	case !task.Begun: // the ledger was restored from an older dump
		return say, Begun
	}
	return rest, ""
}
