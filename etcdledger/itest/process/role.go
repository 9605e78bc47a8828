package process

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Role is what a copy does. It reads its configuration with [Self.Config] and ends soon after its context, which ends
// with the copy's standard input.
type Role func(ctx context.Context, self *Self) error

// Self connects a copy with the program that started it. Its methods may be called from any goroutine.
type Self struct {
	// Told has the lines that the program sends to the copy.
	Told   <-chan string
	config string

	mu sync.Mutex // guards standard output, so that lines are whole
}

// Config decodes the configuration that the copy was started with.
func (s *Self) Config(into any) error {
	if err := json.Unmarshal([]byte(s.config), into); err != nil {
		return fmt.Errorf("process: configuration: %w", err)
	}
	return nil
}

// Say sends a value to the program that started the copy, as a line of JSON. The line arrives even if the copy is killed as
// soon as Say has returned.
func (s *Self) Say(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("process: say: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("process: say: %w", err)
	}
	return nil
}

// Main returns at once in the program itself. In a copy it runs the copy's role and never returns. Call it first in main or in
// TestMain.
func Main(roles map[string]Role) {
	name := os.Getenv(roleVariable)
	if name == "" {
		return
	}
	role := roles[name]
	if role == nil {
		fmt.Fprintf(os.Stderr, "process: no role %q\n", name)
		os.Exit(2)
	}
	told := make(chan string, 16)
	ctx, cancel := context.WithCancel(context.Background())
	go listen(told, cancel)
	self := &Self{Told: told, config: os.Getenv(configVariable)}
	_ = os.Unsetenv(roleVariable) // the copy's own copies have roles of their own
	if err := role(ctx, self); err != nil {
		fmt.Fprintf(os.Stderr, "process: %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// grace is how long a role may go on after the end of its context.
const grace = 10 * time.Second

// listen passes on the lines from standard input. At their end it ends the context, and the copy if its role has not returned
// after grace.
func listen(told chan<- string, cancel context.CancelFunc) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		told <- lines.Text()
	}
	cancel()
	time.Sleep(grace)
	fmt.Fprintln(os.Stderr, "process: the role does not end")
	os.Exit(3)
}
