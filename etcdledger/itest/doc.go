// Package itest tests etcdledger on real etcd servers, one member and three, on loopback, and orbit's rooms over etcdledger and
// diskledger. Each member is an operating-system process of its own that can be killed, and so is each process that has rooms. The tests are short; the environment variable
// ORBIT_ITEST_SCALE=10 makes them ten times as long.
package itest
