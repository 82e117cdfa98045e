// Times and numbers as people read them. Times are microseconds since 1970, shown in UTC.

export function thousands(n: number): string {
  return Math.round(n).toLocaleString("en-US");
}

export function plural(n: number, noun: string): string {
  return n === 1 ? `1 ${noun}` : `${thousands(n)} ${noun}s`;
}

export function duration(us: number): string {
  const digits = (value: number, unit: string) =>
    `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
  if (us < 1_000) return `${Math.round(us)} µs`;
  if (us < 1_000_000) return digits(us / 1e3, "ms");
  if (us < 120_000_000) return digits(us / 1e6, "s");
  if (us < 7_200_000_000) return `${Math.floor(us / 6e7)} min ${Math.round((us % 6e7) / 1e6)} s`;
  if (us < 172_800_000_000) return `${Math.floor(us / 3.6e9)} h ${Math.round((us % 3.6e9) / 6e7)} min`;
  return `${(us / 8.64e10).toFixed(1)} days`;
}

export function bytes(n: number): string {
  if (n < 10_000) return `${thousands(n)} B`;
  if (n < 1e7) return `${(n / 1e3).toFixed(1)} kB`;
  return n < 1e10 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(1)} GB`;
}

const two = (n: number) => String(n).padStart(2, "0");

export function date(us: number): string {
  const at = new Date(us / 1000);
  return `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
}

/** `04:00:01.123456`, with so many digits behind the point. */
export function clock(us: number, digits = 6): string {
  const at = new Date(Math.floor(us / 1000));
  const seconds = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
  const part = ((us % 1e6) + 1e6) % 1e6;
  const fraction = String(Math.floor(part)).padStart(6, "0").slice(0, digits);
  return digits === 0 ? seconds : `${seconds}.${fraction}`;
}

/** How far apart marks of an axis are, and how they are written. */
export function ticks(spanUs: number, wanted: number): { step: number; label: (us: number) => string } {
  const least = spanUs / wanted;
  const steps: number[] = [];
  for (let power = 1; power <= 100_000; power *= 10) steps.push(power, 2 * power, 5 * power);
  const second = 1e6;
  steps.push(1e6, 2e6, 5e6, 10e6, 15e6, 30e6);
  for (const minutes of [1, 2, 5, 10, 15, 30]) steps.push(minutes * 60 * second);
  for (const hours of [1, 2, 3, 6, 12]) steps.push(hours * 3600 * second);
  for (const days of [1, 2, 7, 14, 28, 91, 365]) steps.push(days * 86400 * second);
  const step = steps.find((one) => one >= least) ?? 365 * 86400 * second;
  if (step >= 86400 * second) return { step, label: date };
  if (step >= 60 * second) return { step, label: (us) => clock(us, 0).slice(0, 5) };
  if (step >= second) return { step, label: (us) => clock(us, 0) };
  const digits = step >= 1e5 ? 1 : step >= 1e4 ? 2 : step >= 1e3 ? 3 : step >= 100 ? 4 : step >= 10 ? 5 : 6;
  return { step, label: (us) => clock(us, digits) };
}

/** Ids in reports are plain numbers: the recorder's above 2^48. */
export function plainId(id: number): string {
  const unit = 2 ** 48;
  return id < unit ? String(id) : `${Math.floor(id / unit)}.${id % unit}`;
}
