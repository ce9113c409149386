# The program that `fermata worker check --profile minimal -- ruby examples/ruby/check.rb` starts.

require_relative "fermata_worker"

JOURNAL = ENV.fetch("FERMATA_CHECK_JOURNAL", File::NULL)

def journal(event, lease) = File.open(JOURNAL, "a") { |f| f.syswrite("#{event} #{lease.token}\n") }

handlers = {
  "succeed" => ->(lease) { lease.payload },
  "fail" => ->(lease) { raise lease.payload.dup.force_encoding("UTF-8") },
  "permanent" => ->(lease) { raise Fermata::Permanent, lease.payload.dup.force_encoding("UTF-8") },
  "retry_after" => ->(lease) { raise Fermata::RetryAfter.new("busy", lease.payload.to_i / 1000.0) },
  "sleep" => ->(lease) { sleep(lease.payload.to_i / 1000.0); "slept" },
  "panic" => ->(_lease) { exit 3 },
}.to_h do |name, handler|
  journaled = lambda do |lease|
    journal("start", lease)
    handler.call(lease)
  ensure
    journal("end", lease)
  end
  ["check.#{name}", journaled]
end

ca, cert, key = %w[CA CERT KEY].map { |name| ENV["FERMATA_TLS_#{name}"]&.then { |path| File.read(path) } }
token_file = ENV["FERMATA_TOKEN_FILE"]
worker = Fermata::Worker.new(
  ENV.fetch("FERMATA_ADDRESS", "127.0.0.1:7070").split(","), handlers: handlers,
  queues: ENV.fetch("FERMATA_QUEUES", "default").split(","), slots: ENV.fetch("FERMATA_SLOTS", "16").to_i,
  namespace: ENV.fetch("FERMATA_NAMESPACE", "default"),
  drain_timeout: ENV.fetch("FERMATA_DRAIN_TIMEOUT", "30000ms").to_i / 1000.0,
  credentials: ca ? GRPC::Core::ChannelCredentials.new(ca, key, cert) : :this_channel_is_insecure,
  token: token_file && -> { File.read(token_file).strip }
)
%w[TERM INT].each { |signal| trap(signal) { worker.stop } }
exit worker.run
