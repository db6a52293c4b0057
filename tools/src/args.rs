//! The command line of `mt`: subcommands, flags and their help. Only text is taken here; `layers.rs` merges it with the
//! file and the defaults, and `resolve.rs` gives it a meaning.

use clap::{Args, Parser, Subcommand};

/// Trains language models in full precision on machines whose memory holds neither the model nor its state.
#[derive(Parser, Debug)]
#[command(
    name = "mt",
    version,
    max_term_width = 110,
    after_help = "Exit codes: 0 done, 2 bad input (also a file that is missing or unreadable), \
    3 does not fit, 4 I/O or corruption, 5 numeric stop, 130 stopped (resumable with commits).\n\nExamples:\n  \
    mt train\n  mt train --data notes.txt --run runs/notes\n  \
    mt resume runs/notes\n  mt export runs/notes --out notes-model"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model; without arguments a small one on built-in sentences
    #[command(after_help = "Every flag can stand in CONFIG.toml under its own name (batch = 8, no-shuffle = true, \
        betas = [0.9, 0.95]). Flags win over the file; paths in the file are relative to it.\n\nExamples:\n  \
        mt train\n  \
        mt train --data notes.txt --steps 200\n  \
        mt train --model SmolLM2-135M --data a.txt --data b.txt --ram 600MiB --epochs 1\n  \
        mt train --shape 1.5b --data synthetic --steps 5 --durability none --discard\n  \
        mt train config.toml --lr 1e-4 --print-config")]
    Train(Box<Train>),
    /// Say what a training run would do and cost, before anything is made or moved
    #[command(
        after_help = "Takes what mt train takes, as flags and in CONFIG.toml, and needs no weights: --model may \
        hold config.json alone, and --data may be left out. Exits with 3 where mt train would refuse. With --json it \
        prints one object; tools/plan-json.md describes it.\n\nExamples:\n  \
        mt plan --model SmolLM2-135M --data a.txt --ram 600MiB\n  \
        mt plan --shape 70b --ram 112GiB --store /nvme0 --store /nvme1 --tbw 1200\n  \
        mt plan --shape 7b --vram 22GiB --ram 112GiB\n  \
        mt plan config.toml --profile workstation.json\n  mt plan --list-shapes"
    )]
    Plan(Box<Plan>),
    /// Continue a run at its last commit, with the very same numbers as if it had never stopped
    #[command(after_help = "Examples:\n  mt resume runs/notes-1\n  mt resume runs/notes-1 --ram 2GiB\n  \
        mt resume runs/notes-1 --steps 400 --allow-change steps\n  mt resume runs/notes-1 --store /old/disk=/new/disk")]
    Resume(Box<Resume>),
    /// Write a run's last commit as a model folder
    #[command(after_help = "Examples:\n  mt export runs/notes-1 --out notes-model\n  \
        mt export runs/notes-1 --out notes-model --dtype bf16 --max-shard 2GB")]
    Export(Export),
    /// Read every page of a run's last commit and compare it with its checksum
    #[command(after_help = "Example:\n  mt verify runs/notes-1")]
    Verify(Named),
    /// Show what a run's folder and store hold
    #[command(after_help = "Examples:\n  mt inspect runs/notes-1\n  mt inspect runs/notes-1 --json")]
    Inspect(Named),
    /// Write a run's report: one HTML page with its curves, times, traffic and plan
    #[command(after_help = "The page needs no other file and no network. A run that goes on may be reported.\n\n\
        Examples:\n  mt report runs/notes-1\n  mt report runs/notes-1 --out notes.html --tbw 600")]
    Report(Report),
    /// Look at this machine and say what is in the way, with the command that mends it
    #[command(after_help = "Exits with 1 where something is in the way. mt-bench io measures what this only looks at.\
        \n\nExamples:\n  mt doctor\n  mt doctor /nvme0 /nvme1 --json")]
    Doctor(Doctor),
    /// Measure this machine and print its profile
    #[command(hide = true)]
    Probe(Probe),
    /// List the runs in a folder
    #[command(after_help = "Examples:\n  mt ls\n  mt ls /data/runs --json")]
    Ls(List),
    /// Delete a run: its folder and its store
    #[command(after_help = "Examples:\n  mt rm runs/notes-1\n  mt rm runs/notes-1 --yes")]
    Rm(Remove),
}

impl Command {
    /// Whether a flag asks for JSON.
    pub fn is_json(&self) -> bool {
        match self {
            Command::Train(args) => args.json,
            Command::Plan(args) => args.train.json,
            Command::Resume(args) => args.json,
            Command::Export(args) => args.json,
            Command::Verify(args) | Command::Inspect(args) => args.json,
            Command::Report(args) => args.json,
            Command::Ls(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::Probe(_) | Command::Rm(_) => false,
        }
    }
}

/// Flags of `mt train`. All values are text here; their names are those of `options.rs`.
#[derive(Args, Debug)]
pub struct Train {
    /// TOML file with any of the flags below
    #[arg(value_name = "CONFIG.toml")]
    pub config: Option<String>,
    /// Model folder: config.json and, unless training starts from a random initialization, safetensors [default: a
    /// built-in model of 12.7 M parameters]
    #[arg(long, value_name = "DIR")]
    pub model: Option<String>,
    /// Dimensions of a published model in place of --model, with random weights: 1.5b, 3b, 7b, 8b, 13b, 70b, 104b or
    /// 120b [default: not set]
    #[arg(long, value_name = "NAME", conflicts_with = "model")]
    pub shape: Option<String>,
    /// UTF-8 text file, one document; may be repeated; or "synthetic": random ids, to measure speed [default: built-in
    /// sentences; needed with --model and --shape]
    #[arg(long, value_name = "FILE")]
    pub data: Vec<String>,
    /// Folder of the run; must not exist [default: runs/NAME-1, -2, ...]
    #[arg(long, value_name = "DIR")]
    pub run: Option<String>,
    /// Folder for pages [default: store in the run folder]
    #[arg(long, value_name = "DIR")]
    pub store: Vec<String>,
    /// Where a store's file system has no direct I/O: preferred: go through the page cache, with a warning; required:
    /// refuse [default: preferred]
    #[arg(long, value_name = "preferred|required")]
    pub direct_io: Option<String>,
    /// How pages move to and from the store: io_uring, a pool of threads, or auto: io_uring where the system has it
    /// [default: auto]
    #[arg(long, value_name = "auto|uring|pool")]
    pub io: Option<String>,
    /// What computes: cpu, a GPU by its number, or auto: a GPU where --vram or a precision other than fp32 is given, or
    /// where one is found that can run the model and is predicted to be faster [default: auto]
    #[arg(long, value_name = "cpu|cuda[:N]|auto")]
    pub device: Option<String>,
    /// VRAM of the whole process, its context included, e.g. 22GiB or auto: what the profile's GPU has [default: auto]
    #[arg(long, value_name = "SIZE|auto", allow_negative_numbers = true)]
    pub vram: Option<String>,
    /// What matrix products compute in; auto: bf16 on a GPU, fp32 on the processor [default: auto]
    #[arg(long, value_name = "bf16|tf32|fp32|auto")]
    pub precision: Option<String>,
    /// RAM of the whole process, e.g. 600MiB or auto: what is free, less a margin [default: auto; without --model
    /// 64MiB, and 5MiB for each thread beyond 4]
    #[arg(long, value_name = "SIZE|auto", allow_negative_numbers = true)]
    pub ram: Option<String>,
    /// Optimizer steps of the run [default: without --epochs, 60 without --model; else as --epochs says]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<String>,
    /// Passes over the data; with --steps too, the first reached ends the run [default: 1 with --model and no --steps]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub epochs: Option<String>,
    /// Stop after this step, resumable [default: not set]
    #[arg(long, value_name = "STEP", allow_negative_numbers = true)]
    pub stop_at: Option<String>,
    /// Sequences per optimizer step [default: 4]
    #[arg(long, value_name = "SEQUENCES", allow_negative_numbers = true)]
    pub batch: Option<String>,
    /// Sequences computed together; auto: about 1,024 tokens [default: auto]
    #[arg(long, value_name = "N|auto", allow_negative_numbers = true)]
    pub micro_batch: Option<String>,
    /// Tokens of a sequence [default: 512; 128 without --model]
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub seq_len: Option<String>,
    /// Peak learning rate [default: 2e-5; 2e-3 without --model]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub lr: Option<String>,
    /// Learning rate after the warm-up: constant, linear or cosine [default: cosine]
    #[arg(long, value_name = "SHAPE")]
    pub lr_schedule: Option<String>,
    /// Length of the warm-up, in steps or as a percentage of the run [default: 5%; 20 without --model]
    #[arg(long, value_name = "STEPS|PERCENT", allow_negative_numbers = true)]
    pub warmup: Option<String>,
    /// Floor of the learning rate as a share of its peak [default: 0.1]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub min_lr_ratio: Option<String>,
    /// Clip gradients to this global norm, or off [default: 1]
    #[arg(long, value_name = "F|off", allow_negative_numbers = true)]
    pub max_grad_norm: Option<String>,
    /// Decoupled weight decay of matrices [default: 0.1]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub weight_decay: Option<String>,
    /// Decay rates of AdamW's two moments [default: 0.9,0.95]
    #[arg(long, value_name = "F,F")]
    pub betas: Option<String>,
    /// AdamW's epsilon, added outside the root [default: 1e-8]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub eps: Option<String>,
    /// Seed of a random initialization and of the order of sequences [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<String>,
    /// CPU threads; auto: all that the process may use [default: auto]
    #[arg(long, value_name = "N|auto", allow_negative_numbers = true)]
    pub threads: Option<String>,
    /// Take sequences in their order [default: a seeded order, another in each epoch]
    #[arg(long)]
    pub no_shuffle: bool,
    /// What layers compute again in backward instead of keeping it: all, none, or auto: in each layer as much as is
    /// predicted to be fastest; since drives wear, every doubling of the written bytes must bring 10% [default: auto]
    #[arg(long, value_name = "auto|all|none")]
    pub recompute: Option<String>,
    /// Steps between commits; auto: as often as costs at most 1% [default: auto; a commit at the end alone without
    /// --model, --data, --steps and --epochs]
    #[arg(long, value_name = "N|auto", allow_negative_numbers = true)]
    pub checkpoint_every: Option<String>,
    /// full: a crash at any moment loses at most the steps since the last commit. none: a crash loses the run; needs
    /// --export or --discard [default: full]
    #[arg(long, value_name = "full|none")]
    pub durability: Option<String>,
    /// With --durability none and --max-grad-norm off: updates may run in backward where that is faster. A gradient
    /// that is not finite is then found when it has changed some weights, and no whole model is left [default: off]
    #[arg(long)]
    pub no_nan_guard: bool,
    /// Write the trained model to this folder at the end, or at a stop with --durability none [default: not set]
    #[arg(long, value_name = "DIR")]
    pub export: Option<String>,
    /// With --durability none: let the trained model go [default: off]
    #[arg(long)]
    pub discard: bool,
    /// Elements of a page: a power of two from 2048 to 1048576 [default: auto: at most 1% of padding]
    #[arg(long, value_name = "ELEMENTS|auto", allow_negative_numbers = true)]
    pub page: Option<String>,
    /// Rates that the plan is made with: a file; auto: those saved for this machine, else a probe of about two seconds,
    /// which is kept; assumed. They never change a result [default: auto]
    #[arg(long, value_name = "FILE|auto|assumed")]
    pub profile: Option<String>,
    /// Space for the store on all its volumes; auto: what is free, less a hundredth [default: auto]
    #[arg(long, value_name = "SIZE|auto", allow_negative_numbers = true)]
    pub disk: Option<String>,
    /// Stop, resumable, before the store's written bytes over its life exceed this; a percentage is of the drives'
    /// rated life and needs --tbw [default: not set]
    #[arg(long, value_name = "SIZE|PERCENT", allow_negative_numbers = true)]
    pub max_writes: Option<String>,
    /// Rated life of each drive in TB written, as its data sheet says [default: not set]
    #[arg(long, value_name = "TB", allow_negative_numbers = true)]
    pub tbw: Option<String>,
    /// Write a timeline of some steps, measured and predicted, for ui.perfetto.dev; takes 4.5 MiB of the RAM
    /// [default: not set]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,
    /// Steps to trace, such as 3 or 3-5, counted from the first step of this process; of a process with fewer steps the
    /// last [default: 3]
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true)]
    pub trace_steps: Option<String>,
    /// Print JSON lines on stdout, everything else on stderr [default: off]
    #[arg(long)]
    pub json: bool,
    /// Print each value and where it came from, and stop [default: off]
    #[arg(long)]
    pub print_config: bool,
}

/// Flags of `mt plan`: those of `mt train`, and what a plan can do without a model.
#[derive(Args, Debug)]
pub struct Plan {
    /// Print the dimensions of the known shapes, and stop [default: off]
    #[arg(long)]
    pub list_shapes: bool,
    /// What would be trained, and how.
    #[command(flatten)]
    pub train: Train,
}

/// Flags of `mt doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Folders where pages may be kept [default: the present one]
    #[arg(value_name = "PATH")]
    pub paths: Vec<std::path::PathBuf>,
    /// Print one JSON object on stdout [default: off]
    #[arg(long)]
    pub json: bool,
}

/// Flags of `mt resume`.
#[derive(Args, Debug)]
pub struct Resume {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Optimizer steps of the whole run, those already done included [default: as the run was started]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<String>,
    /// Stop after this step, resumable [default: not set]
    #[arg(long, value_name = "STEP", allow_negative_numbers = true)]
    pub stop_at: Option<String>,
    /// Where a store's file system has no direct I/O [default: as the run was started]
    #[arg(long, value_name = "preferred|required")]
    pub direct_io: Option<String>,
    /// How pages move to and from the store [default: as the run was started]
    #[arg(long, value_name = "auto|uring|pool")]
    pub io: Option<String>,
    /// RAM of the whole process [default: as the run was started]
    #[arg(long, value_name = "SIZE|auto", allow_negative_numbers = true)]
    pub ram: Option<String>,
    /// CPU threads [default: as the run was started]
    #[arg(long, value_name = "N|auto", allow_negative_numbers = true)]
    pub threads: Option<String>,
    /// Steps between commits [default: as the run was started]
    #[arg(long, value_name = "N|auto", allow_negative_numbers = true)]
    pub checkpoint_every: Option<String>,
    /// Rates that the plan is made with [default: auto]
    #[arg(long, value_name = "FILE|auto|assumed", default_value = "auto", hide_default_value = true)]
    pub profile: String,
    /// Space for the store on all its volumes [default: as the run was started]
    #[arg(long, value_name = "SIZE|auto", allow_negative_numbers = true)]
    pub disk: Option<String>,
    /// Stop, resumable, before the store's written bytes over its life exceed this [default: as the run was started]
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub max_writes: Option<String>,
    /// The store moved from folder OLD to NEW [default: not moved]
    #[arg(long, value_name = "OLD=NEW")]
    pub store: Vec<String>,
    /// Accept a change that alters the numbers: "steps" for a total that changes the learning rates [default: none]
    #[arg(long, value_name = "WHAT", value_parser = ["steps"])]
    pub allow_change: Vec<String>,
    /// Write the trained model to this folder at the end [default: not set]
    #[arg(long, value_name = "DIR")]
    pub export: Option<String>,
    /// Write a timeline of some steps, measured and predicted, for ui.perfetto.dev; takes 4.5 MiB of the RAM
    /// [default: not set]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,
    /// Steps to trace, such as 3 or 3-5, counted from the first step of this process; of a process with fewer steps the
    /// last [default: 3]
    #[arg(long, value_name = "STEPS", allow_negative_numbers = true, requires = "trace")]
    pub trace_steps: Option<String>,
    /// Print JSON lines on stdout, everything else on stderr [default: off]
    #[arg(long)]
    pub json: bool,
}

/// Flags of `mt export`.
#[derive(Args, Debug)]
pub struct Export {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Folder to write; must not exist or be empty
    #[arg(long, value_name = "DIR")]
    pub out: String,
    /// Type of the numbers: f32, bf16, or source: each tensor as it was imported
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    pub dtype: String,
    /// Largest file; a larger model becomes shards with an index
    #[arg(long, value_name = "SIZE", default_value = "5GB")]
    pub max_shard: String,
    /// Print one JSON object on stdout [default: off]
    #[arg(long)]
    pub json: bool,
}

/// A run and how to print.
#[derive(Args, Debug)]
pub struct Named {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Print one JSON object on stdout [default: off]
    #[arg(long)]
    pub json: bool,
}

/// Flags of `mt report`.
#[derive(Args, Debug)]
pub struct Report {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// File to write [default: report.html in the run folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<String>,
    /// Rated life of each drive in TB written, as its data sheet says [default: not set]
    #[arg(long, value_name = "TB", allow_negative_numbers = true)]
    pub tbw: Option<String>,
    /// Print one JSON object on stdout [default: off]
    #[arg(long)]
    pub json: bool,
}

/// Flags of `mt probe`.
#[derive(Args, Debug)]
pub struct Probe {
    /// Folder on a drive to measure
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<String>,
    /// CPU threads
    #[arg(long, value_name = "N")]
    pub threads: u32,
    /// Shapes to measure, as JSON
    #[arg(long, value_name = "JSON")]
    pub wanted: String,
    /// GPU to measure
    #[arg(long, value_name = "N")]
    pub gpu: Option<usize>,
    /// Profile of this machine to which only the shapes and the GPU are added
    #[arg(long, value_name = "FILE")]
    pub known: Option<String>,
}

/// Flags of `mt ls`.
#[derive(Args, Debug)]
pub struct List {
    /// Folder that holds runs
    #[arg(value_name = "DIR", default_value = "runs")]
    pub dir: String,
    /// Print one JSON object a line on stdout [default: off]
    #[arg(long)]
    pub json: bool,
}

/// Flags of `mt rm`.
#[derive(Args, Debug)]
pub struct Remove {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Do not ask [default: ask]
    #[arg(long)]
    pub yes: bool,
}
