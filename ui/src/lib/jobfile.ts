// A job file from the fields of the form, and back. Fields that the form does not know stay as they are.

export interface Form {
  name: string;
  run: string;
  gpus: string;
  nodes: string;
  ranks: string;
  queue: string;
  priority: string;
  timeLimit: string;
  workdir: string;
  launch: string;
  level: string;
  mode: string;
}

export type JobFile = Record<string, unknown>;

export const EMPTY: Form = {
  name: '',
  run: '',
  gpus: '1',
  nodes: '',
  ranks: '',
  queue: '',
  priority: '',
  timeLimit: '',
  workdir: '',
  launch: '',
  level: '',
  mode: 'preferred',
};

const number = (text: string): number | string => (/^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text);

/** Sets what has a value, and removes what has none: an empty field is no field of the file. */
function put(file: JobFile, key: string, value: unknown): void {
  if (value === '' || value === undefined) delete file[key];
  else file[key] = value;
}

export function toFile(form: Form, before: JobFile): JobFile {
  const file: JobFile = { ...before };
  put(file, 'name', form.name.trim());
  put(file, 'queue', form.queue.trim());
  const resources = { ...(isRecord(before.resources) ? before.resources : {}) };
  put(resources, 'gpus', form.gpus.trim() === '' ? '' : number(form.gpus.trim()));
  put(file, 'resources', Object.keys(resources).length > 0 ? resources : '');
  put(file, 'nodes', form.nodes.trim() === '' ? keepIfStructured(before.nodes) : number(form.nodes.trim()));
  put(file, 'ranks', form.ranks.trim() === '' ? '' : number(form.ranks.trim()));
  put(file, 'priority', form.priority.trim() === '' ? '' : number(form.priority.trim()));
  put(file, 'launch', form.launch);
  const topology = { ...(isRecord(before.topology) ? before.topology : {}) };
  put(topology, 'level', form.level.trim());
  put(topology, 'mode', form.level.trim() ? form.mode : '');
  put(file, 'topology', Object.keys(topology).length > 0 ? topology : '');
  put(file, 'time_limit', form.timeLimit.trim());
  put(file, 'workdir', form.workdir.trim());
  if (!Array.isArray(before.command) || form.run.trim()) {
    if (form.run.trim()) delete file.command;
    put(file, 'run', form.run);
  }
  return file;
}

const keepIfStructured = (value: unknown): unknown => (typeof value === 'object' && value !== null ? value : '');

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function toForm(file: JobFile): Form {
  const text = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');
  const resources = isRecord(file.resources) ? file.resources : {};
  const topology = isRecord(file.topology) ? file.topology : {};
  return {
    name: text(file.name),
    run: text(file.run),
    gpus: text(resources.gpus),
    nodes: text(file.nodes),
    ranks: text(file.ranks),
    queue: text(file.queue),
    priority: text(file.priority),
    timeLimit: text(file.time_limit),
    workdir: text(file.workdir),
    launch: text(file.launch),
    level: text(topology.level),
    mode: text(topology.mode) || 'preferred',
  };
}

/** The object in a text, or why the text is none. */
export function parse(text: string): { file: JobFile } | { error: string } {
  try {
    const value: unknown = JSON.parse(text);
    return isRecord(value) ? { file: value } : { error: 'the job file must be a JSON object' };
  } catch (error) {
    return { error: error instanceof Error ? error.message : 'this is no JSON' };
  }
}
