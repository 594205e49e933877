# Sidekiq: its jobs, which `sidekiq -r` loads, and its producer; with hiredis and three retries.
# frozen_string_literal: true

require "hiredis"
require "sidekiq"
require_relative "probe"

SERVER = { url: ENV.fetch("BENCH_URL"), driver: :hiredis }.freeze

Sidekiq.logger.level = Logger::WARN
Sidekiq.configure_client { |config| config.redis = SERVER }
Sidekiq.configure_server do |config|
  config.redis = SERVER
  config.options[:poll_interval_average] = ENV["BENCH_POLL_SECONDS"]&.to_f # nil: one of all processes polls every 5 s
end

JOBS = Probe::NAMES.to_h do |name|
  job = Class.new do
    include Sidekiq::Job
    sidekiq_options queue: "bench", retry: 3
    define_method(:perform, &Probe.method(name))
  end
  [name, Object.const_set(name.capitalize, job)]
end

module App
  module_function

  def enqueue(task, number) = JOBS.fetch(task).perform_async(number)

  def enqueue_many(task, numbers) = JOBS.fetch(task).perform_bulk(numbers.map { |number| [number] })

  def enqueue_many_at(task, rows)
    dues, numbers = rows.transpose
    Sidekiq::Client.push_bulk("class" => JOBS.fetch(task), "args" => numbers.map { |number| [number] }, "at" => dues)
  end
end
