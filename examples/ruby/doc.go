// Package ruby has a worker in Ruby. Its test generates and checks the messages of the protocol,
// worker_service_pb.rb.
package ruby
