// Package itest tests etcdledger on real etcd servers, one member and three, on loopback. Each member is an
// operating-system process of its own that can be killed. The tests are short; the environment variable
// ORBIT_ITEST_SCALE=10 makes them ten times as long.
package itest
