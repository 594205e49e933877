# A producer on Ruby: `ruby drive.rb APP`, with the protocol of `benchmarks.drive`.
# APP is a file that defines `App.enqueue(task, number)`, `App.enqueue_many(task, numbers)` and
# `App.enqueue_many_at(task, rows)`, where each row is a Unix time and a number.
# frozen_string_literal: true

require "json"
require_relative "probe"
require File.expand_path(ARGV.fetch(0))

module Verbs
  module_function

  def clock = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def now_us = Probe.now_ns / 1000

  def each(task:, count:) = count.times { |number| App.enqueue(task, number) }

  def many(task:, count:, batch:) = (0...count).each_slice(batch) { |numbers| App.enqueue_many(task, numbers) }

  def later(task:, dues:) = App.enqueue_many_at(task, dues.map { |due| [due, (due * 1_000_000).round] })

  def singly(task:, count:)
    count.times do
      sleep rand(0.015..0.025)
      App.enqueue(task, now_us)
    end
  end

  def steadily(task:, count:, rate:)
    started = clock
    count.times do |number|
      sleep [0.0, started + number / rate - clock].max
      App.enqueue(task, now_us)
    end
  end
end

$stdout.sync = true
puts "ready"
$stdin.each_line do |line|
  verb, asked = JSON.parse(line, symbolize_names: true).then { |given| [given.delete(:verb), given] }
  started = Verbs.clock
  Verbs.public_send(verb, **asked)
  puts Verbs.clock - started
end
