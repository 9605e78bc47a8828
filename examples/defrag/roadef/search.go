package main

// solution is an assignment of processes to machines, with the counts from which costs and rules follow.
type solution struct {
	*instance
	at []int
	// By machine and resource: what its processes need, and what is taken as long as moves go on.
	used, taken [][]int64
	// How many processes of each service are on a machine, in a location and in a neighborhood, and how many have moved.
	on, in, near map[[2]int]int
	moved        []int
	spread       []int // by service: the number of its locations
}

func (in *instance) begin() *solution {
	s := &solution{
		instance: in, at: make([]int, len(in.processes)), on: map[[2]int]int{}, in: map[[2]int]int{}, near: map[[2]int]int{},
		moved: make([]int, len(in.services)), spread: make([]int, len(in.services)),
	}
	for range in.machines {
		s.used, s.taken = append(s.used, make([]int64, len(in.resources))), append(s.taken, make([]int64, len(in.resources)))
	}
	for p, m := range in.first {
		s.put(p, m)
		for r, x := range in.processes[p].needs {
			if in.resources[r].transient {
				s.taken[m][r] += x
			}
		}
	}
	return s
}

// put adds a process to a machine.
func (s *solution) put(p, m int) {
	s.count(p, m, 1)
	s.at[p] = m
}

// lift takes a process off its machine.
func (s *solution) lift(p int) { s.count(p, s.at[p], -1) }

func (s *solution) count(p, m, by int) {
	own, of := &s.processes[p], s.processes[p].service
	for r, x := range own.needs {
		s.used[m][r] += int64(by) * x
		if m != s.first[p] || !s.resources[r].transient { // its first machine keeps what is transient
			s.taken[m][r] += int64(by) * x
		}
	}
	s.on[[2]int{of, m}] += by
	s.near[[2]int{of, s.machines[m].neighborhood}] += by
	location := [2]int{of, s.machines[m].location}
	was := s.in[location]
	if s.in[location] += by; was == 0 {
		s.spread[of]++
	} else if s.in[location] == 0 {
		s.spread[of]--
	}
	if m != s.first[p] {
		s.moved[of] += by
	}
}

// keepsRules reports whether all rules hold that a process can break that has come from another machine.
func (s *solution) keepsRules(p, left int) bool {
	m, of := s.at[p], s.processes[p].service
	if s.on[[2]int{of, m}] > 1 || s.spread[of] < s.services[of].spread {
		return false
	}
	for r, x := range s.taken[m] {
		if x > s.machines[m].hard[r] {
			return false
		}
	}
	for _, hood := range []int{s.machines[m].neighborhood, s.machines[left].neighborhood} {
		for _, b := range s.bound[of] {
			if s.near[[2]int{b[0], hood}] > 0 && s.near[[2]int{b[1], hood}] == 0 {
				return false
			}
		}
	}
	return true
}

// cost returns the challenge's cost.
func (s *solution) cost() (sum int64) {
	for m := range s.machines {
		sum += s.machineCost(m)
	}
	for p, m := range s.at {
		sum += s.moveCost(p, m)
	}
	return sum + s.serviceCost()
}

// machineCost returns the costs of load and balance of a machine.
func (s *solution) machineCost(m int) (sum int64) {
	for r, x := range s.used[m] {
		sum += s.resources[r].weight * max(0, x-s.machines[m].soft[r])
	}
	for _, b := range s.balances {
		free := func(r int) int64 { return s.machines[m].hard[r] - s.used[m][r] }
		sum += b.weight * max(0, b.target*free(b.first)-free(b.second))
	}
	return sum
}

// moveCost returns what it costs that a process is on a machine in the end.
func (s *solution) moveCost(p, m int) (sum int64) {
	if m != s.first[p] {
		sum = s.weightProcess * s.processes[p].moveCost
	}
	return sum + s.weightMachine*s.machines[s.first[p]].moveTo[m]
}

// serviceCost returns the cost of the service with the most moves.
func (s *solution) serviceCost() int64 {
	most := 0
	for _, n := range s.moved {
		most = max(most, n)
	}
	return s.weightService * int64(most)
}

// step is a move of process p to a machine; or process q goes to the machine of p in exchange, if it is not -1.
type step struct{ p, to, q int }

// do makes a step, and returns the one that takes it back.
func (s *solution) do(st step) (back step) {
	from := s.at[st.p]
	if s.lift(st.p); st.q >= 0 {
		s.lift(st.q)
		s.put(st.q, from)
	}
	s.put(st.p, st.to)
	return step{st.p, from, st.q}
}

// rise returns by how much a step raises the cost, without the part that services add.
func (s *solution) rise(st step) (more int64) {
	from := s.at[st.p]
	shift := func(p, from, to int, sign int64) {
		for r, x := range s.processes[p].needs {
			s.used[from][r] -= sign * x
			s.used[to][r] += sign * x
		}
	}
	more = -s.machineCost(from) - s.machineCost(st.to) + s.moveCost(st.p, st.to) - s.moveCost(st.p, from)
	shift(st.p, from, st.to, 1)
	if st.q >= 0 {
		shift(st.q, st.to, from, 1)
		more += s.moveCost(st.q, from) - s.moveCost(st.q, st.to)
		defer shift(st.q, st.to, from, -1)
	}
	more += s.machineCost(from) + s.machineCost(st.to)
	shift(st.p, from, st.to, -1)
	return more
}

// best returns the step that lowers the cost most and keeps the rules: a move of one process, or, if no such move lowers it, two
// processes that change places.
func (s *solution) best() (best step, found bool) {
	least, service := int64(0), s.serviceCost()
	consider := func(st step) {
		more := s.rise(st)
		if more-2*s.weightService >= least { // the service with the most moves has at most two fewer after a step
			return
		}
		from := s.at[st.p]
		back := s.do(st)
		more += s.serviceCost() - service
		ok := s.keepsRules(st.p, from) && (st.q < 0 || s.keepsRules(st.q, st.to))
		if s.do(back); ok && more < least {
			least, best, found = more, st, true
		}
	}
	for p := range s.processes {
		for m := range s.machines {
			if m != s.at[p] {
				consider(step{p, m, -1})
			}
		}
	}
	for p := 0; p < len(s.processes) && !found; p++ {
		for q := range s.processes {
			if s.at[p] != s.at[q] {
				consider(step{p, s.at[q], q})
			}
		}
	}
	return best, found
}
