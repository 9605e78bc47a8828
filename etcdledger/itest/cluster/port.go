package cluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports outside the range from which systems choose ports for connections, so that the port of a dead member stays
// free.
const lowestPort, highestPort = 20_000, 30_000

// freePorts returns n addresses on loopback on which no process listens.
func freePorts(n int) (out []string, err error) {
	const tries = 1000
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowestPort+rand.IntN(highestPort-lowestPort)))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // only after the last port has been found, so that none is found twice
		if out = append(out, address); len(out) == n {
			return out, nil
		}
	}
	return nil, errors.New("cluster: no free ports on loopback")
}
