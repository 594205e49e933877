# The tasks of a benchmark, the same as in `benchmarks.probe`: they count, work, and record their start.
# frozen_string_literal: true

module Probe
  FOLDER = ENV.fetch("BENCH_FOLDER")
  WORDS = 65_536
  WORK_SECONDS = 0.010
  LOOK_SECONDS = 0.005
  NAMES = %w[nothing work mark linger meet hold].freeze
  JOURNAL = File.open(File.join(FOLDER, "journal"), "a")

  # A thread's two words in the shared table: calls, and microseconds in them.
  class Count
    def self.of_thread = Thread.current[:count] ||= new

    def initialize
      @table = File.open(Probe.path("counts"), "r+") { |file| IO::Buffer.map(file) }
      taken = File.open(Probe.path("places"), "a") { |file| file.syswrite("x") && file.sysseek(0, IO::SEEK_CUR) }
      @place = 16 * (taken - 1)
      @calls = @busy_us = 0
    end

    def add(busy_us = 0)
      @table.set_value(:u64, @place + 8, @busy_us += busy_us)
      @table.set_value(:u64, @place, @calls += 1)
    end
  end

  module_function

  def path(name) = File.join(FOLDER, name)

  def now_ns = Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)

  def write(event, label)
    JOURNAL.syswrite("#{event} #{label} #{now_ns} #{Process.pid}\n")
  end

  def wait_for(name) = (sleep LOOK_SECONDS until File.exist?(path(name)))

  def nothing(_number) = Count.of_thread.add

  def work(_number)
    started = now_ns
    sleep WORK_SECONDS
    Count.of_thread.add((now_ns - started) / 1000)
  end

  def mark(label) = write("mark", label)

  def linger(label)
    write("linger", label)
    sleep WORK_SECONDS
  end

  def meet(label)
    write("meet", label)
    wait_for("met")
    write("met", label)
  end

  def hold(label)
    write("hold", label)
    wait_for("let-go")
  end
end
