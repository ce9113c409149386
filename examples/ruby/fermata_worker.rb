# A worker in Ruby: the minimal profile of the worker protocol, with one thread for each handler. It announces neither
# heartbeats nor early leases nor prefetch, so that its leases last for two thirds of their life after the stream ends.

require "grpc"
require "monitor"
require "securerandom"
require "socket"
require_relative "worker_service_pb"

module Fermata
  class Permanent < StandardError; end # the run ends without another attempt
  class Ended < Exception; end # raised in a handler whose attempt has to end; its message says why
  class RetryAfter < StandardError # the next attempt starts no earlier than after this many seconds
    attr_reader :seconds
    def initialize(text, seconds) = (super(text); @seconds = seconds)
  end

  class Worker
    STUB = Class.new do
      include GRPC::GenericService
      self.marshal_class_method, self.unmarshal_class_method = :encode, :decode
      self.service_name = "fermata.v1.WorkerService"
      rpc :Work, stream(V1::WorkRequest), stream(V1::WorkResponse)
    end.rpc_stub_class
    CHANNEL = { "grpc.keepalive_time_ms" => 10_000, "grpc.keepalive_timeout_ms" => 5_000,
                "grpc.http2.max_pings_without_data" => 0, "grpc.use_local_subchannel_pool" => 1,
                "grpc.max_receive_message_length" => 64 << 20, "grpc.enable_http_proxy" => 0 }.freeze
    OUTCOMES = { "timed out" => :OUTCOME_TIMED_OUT, "cancelled" => :OUTCOME_CANCELLED }.freeze
    CAUSES = { REASON_LEASE_LOST: "lease lost", REASON_TIMED_OUT: "timed out" }.freeze
    VOID = ["lease lost", "worker stops"].freeze # no failures of the handler
    Attempt = Struct.new(:lease, :thread, :deadline, :cause, :result)

    # handlers: by name, called with a lease; what one returns is the output. token: returns the token of a stream.
    def initialize(addresses, handlers:, queues: ["default"], slots: 16, namespace: "default", drain_timeout: 30,
                   credentials: :this_channel_is_insecure, token: nil)
      @configured, @addresses, @handlers = addresses, addresses.dup, handlers
      @queues, @slots, @namespace = queues, slots, namespace
      @drain_timeout, @credentials, @token = drain_timeout, credentials, token
      @id = "#{Socket.gethostname[0, 80].gsub(/[^A-Za-z0-9.-]/, "-")}-#{Process.pid}-#{SecureRandom.hex(6)}"
      @lock, @attempts, @returned, @epoch, @ttl = Monitor.new, {}, [], 0, 30.0
    end

    # Works until stop is called, then finishes what runs. Returns whether all attempts have ended.
    def run
      Thread.new { Thread.current.abort_on_exception = true; loop { @lock.synchronize { watch }; sleep 0.01 } }
      pause = 0.1
      until finished?
        welcomed = session(@addresses.first)
        @addresses.rotate! unless welcomed
        pause = welcomed ? 0.1 : [pause * 1.5, 2].min
        sleep(pause * rand(0.5..1)) unless finished?
      end
      @attempts.empty?
    end

    def stop = @stop_at ||= now # safe in a signal handler

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    def trust_period = @ttl * 2 / 3 - [@ttl / 6, 2].min
    def suspended? = @watched_at && now - @watched_at >= trust_period # the leases have ended meanwhile
    def finished? = @stop_at && (@attempts.empty? && @returned.empty? || now > @stop_at + @drain_timeout + 5)

    # Serves one stream until it ends. Returns whether the node has welcomed the worker.
    def session(address)
      out, welcomed, contact = Queue.new, false, nil
      channel = connect(address)
      metadata = @token ? { "authorization" => "Bearer #{@token.call}" } : {}
      requests = Enumerator.new { |y| while (m = out.pop) do y << m end }
      stub = STUB.new(address, @credentials, channel_override: channel)
      call = stub.work(requests, metadata: metadata, return_op: true)
      @stream = [call, out]
      late = Thread.new { sleep 2; call.cancel unless welcomed }
      out << V1::WorkRequest.new(hello: hello)
      call.execute.each do |message|
        @lock.synchronize { welcomed ? handle(message) : welcome(message.welcome, out) }
        welcomed = true
      end
      @lock.synchronize { @returned.clear } # the node has read everything
      welcomed
    rescue GRPC::BadStatus, GRPC::Core::CallError, IOError, SystemCallError => e
      contact = now - 15 if e.message.match?(/ping|keepalive|timeout|timed out/i) # until gRPC notices a dead connection
      warn "fermata: #{address}: #{e.message}"
      welcomed
    ensure
      late&.kill
      out << nil
      channel&.close
      @lock.synchronize { @trusted_until, @out = (contact || now) + trust_period, nil if @out }
    end

    # Returns a connection that is ready. At an address that a node has named, the certificate has to be that of a
    # configured host.
    def connect(address)
      host = @configured[0][/\A\[?([^\]]*?)\]?:\d+\z/, 1]
      options = @configured.include?(address) ? CHANNEL : CHANNEL.merge("grpc.ssl_target_name_override" => host)
      channel, limit = GRPC::Core::Channel.new(address, options, @credentials), Time.now + 2
      until (state = channel.connectivity_state(true)) == GRPC::Core::ConnectivityStates::READY
        failed = state == GRPC::Core::ConnectivityStates::TRANSIENT_FAILURE || Time.now >= limit
        (channel.close; raise IOError, "no connection") if failed
        channel.watch_connectivity_state(state, limit)
      end
      channel
    end

    def hello
      lost = -> { @lock.synchronize { @attempts.values.any? { |a| a.cause == "lease lost" && !a.result } } }
      sleep 0.005 while lost.call # another worker may have their leases after the Hello
      live = @lock.synchronize { @attempts.keys }
      V1::Hello.new(worker_id: @id, namespace: @namespace, queues: @queues, slots: @slots,
                    session_epoch: @epoch += 1, live_lease_ids: live)
    end

    def welcome(message, out)
      @out, @trusted_until, @draining = out, nil, false
      @ttl = message.lease_ttl.seconds + message.lease_ttl.nanos / 1e9
      deliver(returned: V1::Returned.new(lease_ids: @returned)) unless @returned.empty?
      @attempts.each_value { |a| deliver(results: V1::Results.new(results: [a.result])) if a.result }
    end

    def deliver(message) = @out&.push(V1::WorkRequest.new(**message))

    def handle(message)
      case message.message
      when :leases then message.leases.leases.each { |lease| accept(lease) }
      when :result_acks
        message.result_acks.acks.each { |ack| @attempts.delete(ack.lease_id) if @attempts[ack.lease_id]&.result }
      when :cancel
        cause = CAUSES.fetch(message.cancel.reason, "cancelled")
        message.cancel.lease_ids.each { |id| interrupt(@attempts[id], cause) }
      when :drain
        learnt = @credentials.is_a?(Symbol) && @token ? [] : message.drain.addresses.to_a # no token over open networks
        @addresses = learnt | @addresses.rotate
        @stream[0].cancel # the leases last
      end
    end

    def accept(lease)
      if (known = @attempts[lease.lease_id])
        deliver(results: V1::Results.new(results: [known.result])) if known.result
      elsif @stop_at || suspended?
        @returned << lease.lease_id
        deliver(returned: V1::Returned.new(lease_ids: [lease.lease_id]))
      else
        timeout = lease.timeout ? lease.timeout.seconds + lease.timeout.nanos / 1e9 : 0
        attempt = @attempts[lease.lease_id] = Attempt.new(lease, nil, timeout > 0 ? now + timeout : nil)
        deliver(started: V1::Started.new(lease_ids: [lease.lease_id]))
        Thread.handle_interrupt(Ended => :never) { attempt.thread = Thread.new { execute(attempt) } }
      end
    end

    def execute(attempt)
      Thread.current.report_on_exception = false
      lease, began = attempt.lease, now
      result = V1::Result.new(lease_id: lease.lease_id, outcome: :OUTCOME_SUCCEEDED)
      begin
        handler = @handlers[lease.handler] or raise "no handler #{lease.handler.inspect} on this worker"
        result.output = Thread.handle_interrupt(Ended => :immediate) { handler.call(lease) }.to_s.b.byteslice(0, 4096)
      rescue Exception => e # whatever it is, it is the attempt's error
        result.outcome = OUTCOMES.fetch(attempt.cause, :OUTCOME_FAILED)
        result.outcome = :OUTCOME_FAILED_PERMANENTLY if e.is_a?(Permanent)
        result.error = e.message.to_s.dup.force_encoding("UTF-8").scrub.byteslice(0, 512).scrub("")
        result.retry_after = duration(e.seconds) if e.is_a?(RetryAfter)
      end
      result.duration = duration(now - began)
      @lock.synchronize { finish(attempt, result) }
    end

    def duration(seconds) = Google::Protobuf::Duration.new(seconds: seconds.to_i, nanos: (seconds % 1 * 1e9).to_i)

    def finish(attempt, result)
      if result.outcome != :OUTCOME_SUCCEEDED && VOID.include?(attempt.cause)
        @attempts.delete(result.lease_id)
        deliver(lost: V1::Lost.new(lease_ids: [result.lease_id]))
        # Frees the slot at the node.
        deliver(returned: V1::Returned.new(lease_ids: [result.lease_id])) if attempt.cause == "lease lost"
      else
        attempt.result = result
        deliver(results: V1::Results.new(results: [result]))
      end
    end

    def interrupt(attempt, cause)
      return if attempt.nil? || attempt.cause || attempt.result
      attempt.cause = cause
      attempt.thread.raise(Ended, cause)
    end

    # Is called every 10 ms.
    def watch
      call, out = @stream
      out << nil if call&.status # the node has ended the stream; gRPC waits for the end of the requests
      all = @attempts.values
      all.each { |a| interrupt(a, "timed out") if a.deadline && now >= a.deadline }
      all.each { |a| interrupt(a, "lease lost") } if suspended? || @trusted_until && now >= @trusted_until
      @watched_at = now
      return unless @stop_at
      all.each { |a| interrupt(a, "worker stops") } if now > @stop_at + @drain_timeout
      @draining ||= deliver(draining: V1::Draining.new)
      return unless @out && @attempts.empty?
      @out << nil # closes the worker's side; the node ends the stream
      @out = nil
      Thread.new { sleep 2; call.cancel }
    end
  end
end
