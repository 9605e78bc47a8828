package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// instance is a problem of the challenge, with its numbers in the order of the file.
type instance struct {
	resources []resource
	machines  []machine
	services  []service
	processes []process
	balances  []balance
	// The weights of the costs of moving a process, of the service with the most moves, and of the pairs of machines.
	weightProcess, weightService, weightMachine int64
	// first is the machine of each process at the beginning.
	first []int
	// By service: each pair {a, b} in which a depends on b, and the service is a or b.
	bound [][][2]int
}

type resource struct {
	transient bool // what moves takes it on its first machine, too
	weight    int64
}

type machine struct {
	neighborhood, location int
	hard, soft, moveTo     []int64
}

type service struct {
	spread    int // the least number of locations
	dependsOn []int
}

type process struct {
	service  int
	needs    []int64
	moveCost int64
}

type balance struct {
	first, second  int
	target, weight int64
}

var errInstance = errors.New("no instance of the challenge")

// reader reads numbers, and keeps the first error.
type reader struct {
	words *bufio.Scanner
	err   error
}

func (r *reader) number() int64 {
	if r.err != nil {
		return 0
	}
	if !r.words.Scan() {
		r.err = fmt.Errorf("%w: it ends too early: %w", errInstance, errors.Join(r.words.Err(), io.ErrUnexpectedEOF))
		return 0
	}
	n, err := strconv.ParseInt(r.words.Text(), 10, 64)
	if err != nil || n < 0 {
		r.err = fmt.Errorf("%w: %q is no number from 0", errInstance, r.words.Text())
	}
	return n
}

// index reads a number below a limit.
func (r *reader) index(below int) int {
	n := r.number()
	if r.err == nil && n >= int64(below) {
		r.err = fmt.Errorf("%w: %d, want less than %d", errInstance, n, below)
	}
	return int(n)
}

func (r *reader) numbers(count int) (out []int64) {
	for range count {
		if r.err == nil {
			out = append(out, r.number())
		}
	}
	return out
}

// each calls read as often as the next number says.
func (r *reader) each(read func()) {
	for range r.index(1 << 20) {
		if r.err == nil {
			read()
		}
	}
}

// read reads a model and the first assignment.
func read(model, assignment io.Reader) (*instance, error) {
	r, in := &reader{words: bufio.NewScanner(model)}, &instance{}
	r.words.Split(bufio.ScanWords)
	r.each(func() { in.resources = append(in.resources, resource{r.number() == 1, r.number()}) })
	count := r.index(1 << 20)
	for range count {
		if r.err == nil {
			in.machines = append(in.machines, machine{
				r.index(1 << 20), r.index(1 << 20), r.numbers(len(in.resources)), r.numbers(len(in.resources)), r.numbers(count),
			})
		}
	}
	r.each(func() {
		s := service{spread: r.index(1 << 20)}
		r.each(func() { s.dependsOn = append(s.dependsOn, r.index(1<<20)) })
		in.services = append(in.services, s)
	})
	in.bound = make([][][2]int, len(in.services))
	for a, s := range in.services {
		for _, d := range s.dependsOn {
			if d >= len(in.services) {
				return nil, cmp.Or(r.err, fmt.Errorf("%w: a service depends on service %d of %d", errInstance, d, len(in.services)))
			}
			in.bound[a], in.bound[d] = append(in.bound[a], [2]int{a, d}), append(in.bound[d], [2]int{a, d})
		}
	}
	r.each(func() {
		in.processes = append(in.processes, process{r.index(len(in.services)), r.numbers(len(in.resources)), r.number()})
	})
	r.each(func() {
		in.balances = append(in.balances, balance{r.index(len(in.resources)), r.index(len(in.resources)), r.number(), r.number()})
	})
	in.weightProcess, in.weightService, in.weightMachine = r.number(), r.number(), r.number()
	if r.err == nil {
		r.words = bufio.NewScanner(assignment)
		r.words.Split(bufio.ScanWords)
	}
	for range in.processes {
		in.first = append(in.first, r.index(len(in.machines)))
	}
	return in, r.err
}
