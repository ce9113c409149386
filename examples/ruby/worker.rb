# Sends digests: runs the jobs of the queue mail whose handler is send-digest, as examples/worker does in Go.
#
#   FERMATA_ADDRESS=127.0.0.1:7070 ruby examples/ruby/worker.rb

require_relative "fermata_worker"

send_digest = lambda do |lease|
  raise Fermata::Permanent, "no such account" if lease.payload.empty?
  puts "digest sent to #{lease.payload}, token #{lease.token}" # the token only grows: a store can refuse smaller ones
  "sent to #{lease.payload}" # kept with the run
end

worker = Fermata::Worker.new(ENV.fetch("FERMATA_ADDRESS", "127.0.0.1:7070").split(","), queues: ["mail"], slots: 20,
                             handlers: { "send-digest" => send_digest })
%w[TERM INT].each { |signal| trap(signal) { worker.stop } }
exit worker.run # finishes what runs
